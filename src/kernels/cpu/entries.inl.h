// SPDX-License-Identifier: Apache-2.0
// The table entries of the operations without weights, the same for every instruction set.

void attention(const Attention::Problem& problem, const Attention::Args& args,
               std::span<std::byte> workspace, const Stream& stream) noexcept {
  cpu::run_attention(problem, args, workspace, stream, kAttentionSteps);
}
void rms_norm(const RmsNorm::Problem& problem, const RmsNorm::Args& args, std::span<std::byte>,
              const Stream& stream) noexcept {
  rms_norm_all(problem, args, stream);
}
void prepare_qkv(const PrepareQkv::Problem& problem, const PrepareQkv::Args& args,
                 std::span<std::byte>, const Stream& stream) noexcept {
  prepare_all(problem, args, stream);
}
void gather(const Gather::Problem& problem, const Gather::Args& args, std::span<std::byte>,
            const Stream& stream) noexcept {
  gather_all(problem, args, stream);
}
void combine(const Combine::Problem& problem, const Combine::Args& args, std::span<std::byte>,
             const Stream& stream) noexcept {
  combine_all(problem, args, stream);
}
void route(const Route::Problem& problem, const Route::Args& args, std::span<std::byte>,
           const Stream& stream) noexcept {
  route_all(problem, args, stream);
}
