// SPDX-License-Identifier: Apache-2.0
#include "serve/http_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace switchyard::serve {
namespace {

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_control(int byte) { return byte < 0x20 || byte == 0x7f; }

/// Nothing when an escape is broken, and when a control character comes of it or stands there.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (is_control(static_cast<unsigned char>(text[i]))) return std::nullopt;
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || is_control(high * 16 + low)) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const noexcept {
  const auto found = std::find_if(headers.begin(), headers.end(),
                                  [&](const auto& header) { return header.first == name; });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::string head_text(const HttpReply& reply, const HeadShape& shape) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, reason_phrase(reply.status));
  const auto add = [&](std::string_view name, std::string_view value) {
    text.append(name).append(": ").append(value).append("\r\n");
  };
  add("Content-Type", reply.content_type);
  for (const auto& [name, value] : reply.headers) add(name, value);
  if (shape.length == HeadShape::Length::fixed)
    add("Content-Length", fmt::format("{}", reply.body.size()));
  if (shape.length == HeadShape::Length::chunked) add("Transfer-Encoding", "chunked");
  add("Connection", shape.keep_alive ? "keep-alive" : "close");
  text += "\r\n";
  return text;
}

std::optional<std::string> path_of(std::string_view target) {
  if (target.empty() || target[0] != '/') return std::nullopt;
  auto path = percent_decoded(target.substr(0, target.find_first_of("?#")));
  if (!path) return std::nullopt;
  for (const std::string_view part : {"/../", "/./", "//"})
    if (path->find(part) != std::string::npos) return std::nullopt;
  if (path->ends_with("/..") || path->ends_with("/.")) return std::nullopt;
  return path;
}

std::string chunk_text(std::string_view data) {
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}

}  // namespace switchyard::serve
