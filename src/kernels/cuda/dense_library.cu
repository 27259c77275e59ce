// SPDX-License-Identifier: Apache-2.0
// Source: the cuBLAS library manual, "Using the cuBLASLt API".
#include <array>
#include <cstring>
#include <map>

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "kernels/cuda/dense_library.h"

namespace switchyard::cuda {
namespace {

#define SWITCHYARD_TEXT_INNER(x) #x
#define SWITCHYARD_TEXT(x) SWITCHYARD_TEXT_INNER(x)

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

// The functions that we use, found by name.
struct Api {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) matmul;
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  void* at = dlsym(library, name);
  std::memcpy(&function, &at, sizeof(at));
  return at != nullptr;
}

bool find_all(void* library, Api& api) {
  return find(library, "cublasLtCreate", api.create) &&
         find(library, "cublasLtDestroy", api.destroy) &&
         find(library, "cublasLtMatmulDescCreate", api.desc_create) &&
         find(library, "cublasLtMatmulDescDestroy", api.desc_destroy) &&
         find(library, "cublasLtMatmulDescSetAttribute", api.desc_set) &&
         find(library, "cublasLtMatrixLayoutCreate", api.layout_create) &&
         find(library, "cublasLtMatrixLayoutDestroy", api.layout_destroy) &&
         find(library, "cublasLtMatmulPreferenceCreate", api.preference_create) &&
         find(library, "cublasLtMatmulPreferenceDestroy", api.preference_destroy) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", api.preference_set) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", api.heuristic) &&
         find(library, "cublasLtMatmul", api.matmul);
}

// A product of one shape, ready to run. Column-major to the library: Y^T [n, T] = W [n, k] X^T [k, T].
struct Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool usable = false;
};

using Key = std::array<int64_t, 6>;  // T, n, k, dtype, bias, rounded

class Library final : public DenseLibrary {
 public:
  Library(const Api& api, cublasLtHandle_t handle, void* workspace)
      : api_(api), handle_(handle), workspace_(workspace) {}
  ~Library() override {
    for (auto& [key, plan] : plans_) {
      if (plan.desc != nullptr) api_.desc_destroy(plan.desc);
      for (cublasLtMatrixLayout_t layout : {plan.w, plan.x, plan.y}) {
        if (layout != nullptr) api_.layout_destroy(layout);
      }
    }
    api_.destroy(handle_);
    cudaFree(workspace_);
  }

  bool run(const Dense& args, StreamHandle stream) noexcept override {
    const Key key{args.tokens,
                  args.n,
                  args.k,
                  static_cast<int64_t>(args.dtype),
                  args.bias != nullptr,
                  args.y_bf16 != nullptr};
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, make_plan(args)).first;
    const Plan& plan = found->second;
    if (!plan.usable) return false;
    if (args.bias != nullptr) {
      api_.desc_set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &args.bias, sizeof(args.bias));
    }
    const float beta = args.accumulate ? 1.0f : 0.0f;
    void* const y = args.y_bf16 != nullptr ? args.y_bf16 : args.y;
    return api_.matmul(handle_, plan.desc, &args.alpha, args.weight, plan.w, args.x, plan.x, &beta,
                       y, plan.y, y, plan.y, &plan.algorithm, workspace_, kWorkspaceBytes,
                       stream) == CUBLAS_STATUS_SUCCESS;
  }

 private:
  Plan make_plan(const Dense& args) {
    Plan plan;
    const cudaDataType_t type = args.dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
    const cudaDataType_t result = args.y_bf16 != nullptr ? CUDA_R_16BF : CUDA_R_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto n = static_cast<uint64_t>(args.n), k = static_cast<uint64_t>(args.k);
    const auto tokens = static_cast<uint64_t>(args.tokens);
    bool fine = api_.desc_create(&plan.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0 &&
                api_.desc_set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                              sizeof(transposed)) == 0 &&
                api_.layout_create(&plan.w, type, k, n, args.k) == 0 &&
                api_.layout_create(&plan.x, type, k, tokens, args.k) == 0 &&
                api_.layout_create(&plan.y, result, n, tokens, args.n) == 0;
    if (fine && args.bias != nullptr) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      fine =
          api_.desc_set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)) == 0;
    }
    if (fine) choose_algorithm(plan);
    return plan;
  }

  void choose_algorithm(Plan& plan) {
    cublasLtMatmulPreference_t preference = nullptr;
    if (api_.preference_create(&preference) != 0) return;
    api_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                        sizeof(kWorkspaceBytes));
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    plan.usable = api_.heuristic(handle_, plan.desc, plan.w, plan.x, plan.y, plan.y, preference, 1,
                                 &result, &count) == 0 &&
                  count > 0;
    plan.algorithm = result.algo;
    api_.preference_destroy(preference);
  }

  Api api_;
  cublasLtHandle_t handle_;
  void* workspace_;
  std::map<Key, Plan> plans_;
};

}  // namespace

std::unique_ptr<DenseLibrary> DenseLibrary::open(std::string& why_not) {
  // Never closed: the library keeps threads and memory of its own.
  void* library =
      dlopen("libcublasLt.so." SWITCHYARD_TEXT(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why_not = std::string("cuBLASLt cannot be loaded (") + dlerror() +
              "): add its folder to LD_LIBRARY_PATH";
    return nullptr;
  }
  Api api{};
  if (!find_all(library, api)) {
    why_not = "this cuBLASLt lacks functions that are needed";
    return nullptr;
  }
  cublasLtHandle_t handle = nullptr;
  if (api.create(&handle) != CUBLAS_STATUS_SUCCESS) {
    why_not = "cuBLASLt does not work with this device";
    return nullptr;
  }
  void* workspace = nullptr;
  if (cudaMalloc(&workspace, kWorkspaceBytes) != cudaSuccess) {
    api.destroy(handle);
    why_not = "no memory is left for cuBLASLt's workspace";
    return nullptr;
  }
  return std::make_unique<Library>(api, handle, workspace);
}

}  // namespace switchyard::cuda
