// SPDX-License-Identifier: Apache-2.0
// What sampling alone makes of a popularity: experts touched and imbalance that independent tokens
// would give, to lay beside what was measured.
//
//   pi [E]: pi[e] is the chance that a token picks expert e; they sum to K. B tokens of a batch.
//   imbalance is picks of the hottest expert over the mean, K B / E.
// Sources: the mean of a maximum as the sum of its tail; order statistics of normals (Teichroew
// 1956) for the uniform form. The experts of a batch are treated as independent, which is within
// some percent for B >= 8 (tests/moe/closed_forms_test.cpp compares with a simulation).
#pragma once
#include <cstdint>
#include <span>

namespace switchyard::moe {

/// Sum over e of 1 - (1 - pi[e])^B.
double expected_touched(std::span<const double> pi, int64_t batch);

/// Mean of the hottest of independent Binomial(B, pi[e]), over K B / E. Cost O(B E).
double expected_imbalance(std::span<const double> pi, int64_t batch);

/// 1 + m_E sqrt((1 - K/E) E/(K B) E/(E-1)) for a uniform popularity, m_E the mean maximum of E
/// normals. 1 for a single expert.
double uniform_imbalance(int num_experts, int top_k, int64_t batch);

/// E max(pi) / K: what remains of the imbalance however large the batch.
double imbalance_floor(std::span<const double> pi);

/// The mean of the largest of `count` standard normals.
double normal_maximum(int count);

}  // namespace switchyard::moe
