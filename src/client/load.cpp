// SPDX-License-Identifier: Apache-2.0
#include "client/load.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "client/connection.h"
#include "client/resolve.h"

namespace switchyard::client {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

constexpr double kLeastPause = 0.05, kMostPause = 1;  // seconds

std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

class Player {
 public:
  Player(const Target& target, const Workload& workload, const std::string& api_key,
         const Point& point)
      : target_(target),
        workload_(workload),
        api_key_(api_key),
        point_(point),
        arrival_timer_(context_) {}

  Status resolve_host() {
    SWITCHYARD_ASSIGN(endpoints_, resolve(target_, context_));
    return {};
  }
  Record play();

 private:
  bool more() const;
  bool has_time() const;
  void next_arrival(std::chrono::steady_clock::time_point last);
  void arrive(int64_t planned_ns);
  void begin(std::optional<int64_t> planned_ns = {});
  void next_late();
  void on_end(const std::shared_ptr<Connection>& connection, Outcome&& outcome);
  double pause_after(const Outcome& outcome);
  void rest_then_next(double seconds);
  void on_text(int64_t now);

  const Target& target_;
  const Workload& workload_;
  const std::string& api_key_;
  const Point& point_;
  asio::io_context context_{1};
  Endpoints endpoints_;
  asio::steady_timer arrival_timer_;
  Record record_;
  std::vector<std::shared_ptr<Connection>> resting_;
  std::deque<int64_t> late_;  // moments of arrival of those who wait for a place
  uint32_t drawn_ = 0, arrivals_ = 0;
  int active_ = 0;
  double pause_s_ = 0;  // after failures in a row
};

bool Player::more() const {
  const bool closed = point_.rate == 0;
  const int64_t begun = closed ? drawn_ : arrivals_;
  return (point_.num_requests == 0 || begun < point_.num_requests) && has_time();
}

bool Player::has_time() const {
  return point_.duration_s == 0 ||
         static_cast<double>(now_ns() - record_.start_ns) * 1e-9 < point_.duration_s;
}

Record Player::play() {
  record_.start_ns = now_ns();
  if (point_.rate > 0) {
    next_arrival(std::chrono::steady_clock::now());
  } else {
    for (int i = 0; i < point_.concurrency && more(); ++i) begin();
  }
  context_.run();
  record_.end_ns = std::max(record_.end_ns, record_.start_ns);
  return std::move(record_);
}

/// From the last planned arrival, not from now: a late timer must not slow the process down.
void Player::next_arrival(std::chrono::steady_clock::time_point last) {
  if (!more()) return;
  const double gap_s = draw_gap_s(workload_, point_.stream, arrivals_, point_.rate);
  const auto at = last + duration(gap_s);
  arrival_timer_.expires_at(at);
  arrival_timer_.async_wait([this, at](const ErrorCode& error) {
    if (error || !more()) return;
    const auto late = std::chrono::steady_clock::now() - at;
    arrive(now_ns() - std::chrono::duration_cast<std::chrono::nanoseconds>(late).count());
    next_arrival(at);
  });
}

void Player::arrive(int64_t planned_ns) {
  ++arrivals_;
  if (point_.concurrency > 0 && active_ >= point_.concurrency)
    late_.push_back(planned_ns);
  else
    begin(planned_ns);
}

/// Without a plan, its turn is now.
void Player::begin(std::optional<int64_t> planned_ns) {
  std::shared_ptr<Connection> connection;
  if (resting_.empty()) {
    connection =
        std::make_shared<Connection>(context_, endpoints_, [this](int64_t now) { on_text(now); });
  } else {
    connection = std::move(resting_.back());
    resting_.pop_back();
  }
  const Drawn drawn = draw_request(workload_, point_.stream, drawn_++);
  Call call;
  call.text = request_text(target_, {drawn.path, drawn.body, api_key_});
  call.timeout_s = point_.timeout_s;
  call.cancel_after_s = drawn.cancel_after_s;
  call.cancel_at_text = drawn.cancel_at_text;
  call.planned_ns = planned_ns.value_or(now_ns());
  ++active_;
  record_.peak_concurrency = std::max(record_.peak_concurrency, active_);
  connection->send(std::move(call), [this, connection](Outcome&& outcome) {
    on_end(connection, std::move(outcome));
  });
}

void Player::on_end(const std::shared_ptr<Connection>& connection, Outcome&& outcome) {
  --active_;
  resting_.push_back(connection);
  record_.end_ns = std::max(record_.end_ns, outcome.ended_ns);
  const double wait_s = pause_after(outcome);
  record_.outcomes.push_back(std::move(outcome));
  if (point_.rate > 0) return next_late();
  if (wait_s > 0) return rest_then_next(wait_s);
  if (more()) begin();
}

void Player::next_late() {
  if (!has_time()) record_.not_sent += std::ssize(std::exchange(late_, {}));
  if (late_.empty()) return;
  const int64_t planned_ns = late_.front();
  late_.pop_front();
  begin(planned_ns);
}

/// Of a client in a closed loop, before its next request.
double Player::pause_after(const Outcome& outcome) {
  if (outcome.end == Outcome::End::turned_away && outcome.retry_after_s > 0)
    return outcome.retry_after_s;
  const bool refused =
      outcome.end == Outcome::End::failed || outcome.end == Outcome::End::turned_away;
  pause_s_ = refused ? std::clamp(2 * pause_s_, kLeastPause, kMostPause) : 0;
  return pause_s_;
}

/// Not beyond the end of the run, which would only keep it waiting.
void Player::rest_then_next(double seconds) {
  if (!more()) return;
  const double passed_s = static_cast<double>(now_ns() - record_.start_ns) * 1e-9;
  if (point_.duration_s > 0 && passed_s + seconds >= point_.duration_s) return;
  const auto timer = std::make_shared<asio::steady_timer>(context_, duration(seconds));
  timer->async_wait([this, timer](const ErrorCode& error) {
    if (!error && more()) begin();
  });
}

void Player::on_text(int64_t now) {
  const auto second = static_cast<size_t>((now - record_.start_ns) / 1'000'000'000);
  if (record_.text_events.size() <= second) record_.text_events.resize(second + 1);
  ++record_.text_events[second];
}

}  // namespace

Result<Record> play(const Target& target, const Workload& workload, const std::string& api_key,
                    const Point& point) {
  Player player(target, workload, api_key, point);
  SWITCHYARD_TRY(player.resolve_host());
  return player.play();
}

}  // namespace switchyard::client
