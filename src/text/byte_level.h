// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level BPE: each byte is one visible character. Printable bytes are themselves
// (21 to 7E, A1 to AC, AE to FF), the other 68 are U+0100 and on, in order.
// Reference: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2).
#pragma once
#include <string>
#include <string_view>

namespace switchyard::text {

/// Each byte of `bytes` as its character.
std::string to_byte_alphabet(std::string_view bytes);

/// Replaces `out` by the bytes of a token; false when it has a character from outside the alphabet.
bool from_byte_alphabet(std::string_view token, std::string& out);

/// The byte that a token <0xNN> of byte fallback stands for, or -1.
int byte_of_token(std::string_view token);

}  // namespace switchyard::text
