// SPDX-License-Identifier: Apache-2.0
#include "cli/live_stats.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <utility>

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
  Screen() { put("\033[?1049h\033[?25l"); }
  ~Screen() { put("\033[?25h\033[?1049l"); }

  void show(const std::string& text, size_t rows) {
    std::string out = "\033[H";
    size_t lines = 0;
    for (size_t at = 0; at < text.size() && lines + 1 < rows; ++lines) {
      const size_t end = std::min(text.find('\n', at), text.size());
      out += text.substr(at, end - at) + "\033[K\r\n";
      at = end + 1;
    }
    put((out + "\033[J").c_str());
  }

 private:
  static void put(const char* text) {
    std::fputs(text, stdout);
    std::fflush(stdout);
  }
};

size_t terminal_rows() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

Result<std::string> ask(const client::Target& server, const std::string& path,
                        const std::string& key) {
  SWITCHYARD_ASSIGN(client::Page page, client::fetch(server, path, key));
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
  print(make_live_view(now, nullptr, &first), options);
  return {};
}

Status watch(const client::Target& server, const LiveOptions& options, Pause& pause) {
  std::deque<LiveSnapshot> snapshots;
  SWITCHYARD_ASSIGN(LiveSnapshot first, take_snapshot(server, options.key));
  snapshots.push_back(std::move(first));
  Screen screen;
  for (;;) {
    const LiveSnapshot& now = snapshots.back();
    const LiveSnapshot* const before = snapshots.size() > 1 ? &snapshots.front() : nullptr;
    const size_t rows = terminal_rows();
    const int of_layers = rows > 32 ? static_cast<int>(rows) - 28 : 6;
    screen.show(
        live_view_text(make_live_view(now, before, before), options.url, stdout_look(), of_layers),
        rows);
    if (!pause.wait(options.interval_s)) return {};
    SWITCHYARD_ASSIGN(LiveSnapshot next, take_snapshot(server, options.key));
    snapshots.push_back(std::move(next));
    while (snapshots.size() > 2 &&
           snapshots.back().time_s - snapshots[1].time_s >= kWindowSeconds - 0.1)
      snapshots.pop_front();
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
