// SPDX-License-Identifier: Apache-2.0
#include "client/target.h"

#include <algorithm>
#include <charconv>

namespace switchyard::client {
namespace {

constexpr std::string_view kScheme = "http://";

Result<uint16_t> parse_port(std::string_view text, std::string_view url) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    return fail(Code::bad_request, "{}: expected a port from 1 to 65535, found '{}'", url, text);
  return port;
}

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

Result<Target> parse_target(std::string_view url) {
  std::string_view rest = url;
  if (rest.starts_with("https://"))
    return fail(Code::bad_request,
                "{}: TLS is not spoken here; give the http:// address behind the proxy", url);
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  Target target;
  const size_t slash = rest.find('/');
  std::string_view place = rest.substr(0, slash);
  if (slash != std::string_view::npos) target.prefix = rest.substr(slash);
  while (target.prefix.ends_with('/')) target.prefix.pop_back();
  if (target.prefix.ends_with("/v1")) target.prefix.resize(target.prefix.size() - 3);
  target.host_text = place;
  if (place.empty() || !is_plain(rest) || rest.find_first_of("?#@") != std::string_view::npos)
    return fail(Code::bad_request, "'{}' is no URL of a server; expected http://HOST:PORT", url);
  const size_t bracket = place.starts_with('[') ? place.find(']') : std::string_view::npos;
  if (place.starts_with('[') && bracket == std::string_view::npos)
    return fail(Code::bad_request, "{}: expected a ']' after the address", url);
  const size_t colon = place.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    SWITCHYARD_ASSIGN(target.port, parse_port(place.substr(colon + 1), url));
  }
  target.host =
      bracket == std::string_view::npos ? place.substr(0, colon) : place.substr(1, bracket - 1);
  return target;
}

std::string request_text(const Target& target, const RequestText& request) {
  const bool post = !request.body.empty();
  std::string text = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nAccept: {}\r\n",
                                 post ? "POST" : "GET", target.prefix, request.path,
                                 target.host_text, post ? "text/event-stream" : "*/*");
  if (!request.api_key.empty()) text += "Authorization: Bearer " + request.api_key + "\r\n";
  if (post)
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n",
                        request.body.size());
  return text + "\r\n" + request.body;
}

}  // namespace switchyard::client
