// SPDX-License-Identifier: Apache-2.0
#include "cli/live_stats.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "cli/interrupts.h"
#include "cli/live_view.h"
#include "cli/terminal.h"
#include "client/fetch.h"

namespace switchyard::cli {
namespace {

constexpr double kLimitSeconds = 5;    // for an answer
constexpr double kWindowSeconds = 10;  // that the screen looks back

/// Waits, but no longer than until Ctrl-C.
class Pause {
 public:
  Pause() {
    Interrupts::on_interrupt([this] {
      const std::lock_guard lock(mutex_);
      over_ = true;
      changed_.notify_all();
    });
  }
  ~Pause() { Interrupts::on_interrupt({}); }

  /// False after Ctrl-C.
  bool wait(double seconds) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return over_; });
    return !over_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};

/// The second screen of a terminal, as editors use it; what was there before comes back.
class Screen {
 public:
  // Lines do not wrap: on a narrow terminal they are cut, and rows stay rows.
  Screen() { put("\033[?1049h\033[?25l\033[?7l"); }
  ~Screen() { put("\033[?7h\033[?25h\033[?1049l"); }

  void show(const std::string& text, size_t rows) {
    std::string out = "\033[H";
    const auto all = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    const size_t room = rows > 2 ? rows - 1 : 1;
    const size_t shown = all <= room ? all : room - 1;
    size_t at = 0;
    for (size_t line = 0; line < shown; ++line) {
      const size_t end = text.find('\n', at);
      out += text.substr(at, end - at) + "\033[K\r\n";
      at = end + 1;
    }
    if (shown < all) out += fmt::format("... {} more lines\033[K\r\n", all - shown);
    put((out + "\033[J").c_str());
  }

 private:
  static void put(const char* text) {
    std::fputs(text, stdout);
    std::fflush(stdout);
  }
};

/// How many layers leave room for what stands above and below them: at the usual 24 rows, the latencies.
int rows_of_layers(size_t rows) {
  const int free = static_cast<int>(rows) - (rows > 32 ? 28 : 22);
  return std::max(free, 2);
}

size_t terminal_rows() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

Result<std::string> ask(const client::Target& server, const std::string& path,
                        const std::string& key) {
  SWITCHYARD_ASSIGN(client::Page page, client::fetch(server, path, key, kLimitSeconds));
  if (page.status == 200) return std::move(page.body);
  if (page.status == 401)
    return fail(Code::bad_request, "{} wants a key: give --api-key, or SWITCHYARD_API_KEY", path);
  return fail(Code::unavailable, "{}: the server answers with status {}{}", path, page.status,
              page.status == 503 ? ": it is loading its model, or ending" : "");
}

Result<LiveSnapshot> take_snapshot(const client::Target& server, const std::string& key) {
  SWITCHYARD_ASSIGN(const std::string stats, ask(server, "/v1/moe/stats", key));
  SWITCHYARD_ASSIGN(const std::string metrics, ask(server, "/metrics", key));
  return read_snapshot(metrics, stats, static_cast<double>(now_ns()) * 1e-9);
}

void print(const LiveView& view, const LiveOptions& options) {
  std::string text;
  if (options.json) {
    JsonWriter json(text);
    write_live_view(json, view, options.url);
    text += '\n';
  } else {
    text = live_view_text(view, options.url, stdout_look(), 0);
  }
  std::fputs(text.c_str(), stdout);
}

Status watch_once(const client::Target& server, const LiveOptions& options, Pause& pause) {
  SWITCHYARD_ASSIGN(const LiveSnapshot first, take_snapshot(server, options.key));
  if (!pause.wait(options.interval_s)) return {};
  SWITCHYARD_ASSIGN(const LiveSnapshot now, take_snapshot(server, options.key));
  print(make_live_view(now, nullptr, now.continues(first) ? &first : nullptr), options);
  return {};
}

/// The answers of the last seconds, all of one server.
class Recent {
 public:
  explicit Recent(LiveSnapshot first) { snapshots_.push_back(std::move(first)); }

  void add(LiveSnapshot next) {
    if (!next.continues(snapshots_.back())) snapshots_.clear();  // it began anew
    snapshots_.push_back(std::move(next));
    while (snapshots_.size() > 2 &&
           snapshots_.back().time_s - snapshots_[1].time_s >= kWindowSeconds - 0.1)
      snapshots_.pop_front();
  }
  LiveView view() const {
    const LiveSnapshot* const before = snapshots_.size() > 1 ? &snapshots_.front() : nullptr;
    return make_live_view(snapshots_.back(), before, before);
  }
  double age_s() const { return static_cast<double>(now_ns()) * 1e-9 - snapshots_.back().time_s; }

 private:
  std::deque<LiveSnapshot> snapshots_;
};

/// What stands above the numbers while they are old; no answer is what a view may have been opened to see.
std::string no_answer_text(const Recent& recent, const Error& error, const Look& look) {
  const std::string text = fmt::format("no answer for {:.0f} s: {}", recent.age_s(), error.message);
  return styled(clip(printable(text), look.columns), Style::red, look) + "\n";
}

/// The first answer must come; later ones may be missing, and are asked for again.
Status watch(const client::Target& server, const LiveOptions& options, Pause& pause) {
  SWITCHYARD_ASSIGN(LiveSnapshot first, take_snapshot(server, options.key));
  Recent recent(std::move(first));
  std::string trouble;
  Screen screen;
  for (;;) {
    const size_t rows = terminal_rows();
    const Look look = stdout_look();
    screen.show(trouble + live_view_text(recent.view(), options.url, look, rows_of_layers(rows)),
                rows);
    if (!pause.wait(options.interval_s)) return {};
    Result<LiveSnapshot> next = take_snapshot(server, options.key);
    trouble = next.ok() ? "" : no_answer_text(recent, next.error(), look);
    if (next.ok()) recent.add(*std::move(next));
  }
}

}  // namespace

ExitCode watch_server(const LiveOptions& options) {
  const auto server = client::parse_target(options.url);
  if (!server.ok()) return report(server.error());
  Pause pause;
  const bool renews = stdout_look().terminal && !options.once && !options.json;
  const Status status =
      renews ? watch(*server, options, pause) : watch_once(*server, options, pause);
  return status.ok() ? kOk : report(status.error());
}

}  // namespace switchyard::cli
