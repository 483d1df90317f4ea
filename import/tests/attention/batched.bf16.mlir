module @jit_batched attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x2x128x8xbf16>, %arg1: tensor<2x2x128x8xbf16>, %arg2: tensor<2x2x128x8xbf16>) -> (tensor<2x2x128x8xbf16> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<true> : tensor<i1>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i1>) -> tensor<128x128xi1>
    %1 = call @tril(%0) : (tensor<128x128xi1>) -> tensor<128x128xi1>
    %2 = stablehlo.transpose %arg1, dims = [0, 1, 3, 2] : (tensor<2x2x128x8xbf16>) -> tensor<2x2x8x128xbf16>
    %3 = stablehlo.dot_general %arg0, %2, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x2x128x8xbf16>, tensor<2x2x8x128xbf16>) -> tensor<2x2x128x128xbf16>
    %cst = stablehlo.constant dense<2.828130e+00> : tensor<bf16>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<2x2x128x128xbf16>
    %5 = stablehlo.divide %3, %4 : tensor<2x2x128x128xbf16>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %6 = call @_where(%1, %5, %cst_0) : (tensor<128x128xi1>, tensor<2x2x128x128xbf16>, tensor<f32>) -> tensor<2x2x128x128xbf16>
    %cst_1 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x128x128xbf16>, tensor<bf16>) -> tensor<2x2x128xbf16>
    %cst_2 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %8 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<bf16>) -> tensor<2x2x128xbf16>
    %9 = stablehlo.maximum %8, %7 : tensor<2x2x128xbf16>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<2x2x128xbf16>) -> tensor<2x2x128x1xbf16>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xbf16>) -> tensor<2x2x128x128xbf16>
    %12 = stablehlo.subtract %6, %11 : tensor<2x2x128x128xbf16>
    %13 = stablehlo.exponential %12 : tensor<2x2x128x128xbf16>
    %14 = stablehlo.convert %13 : (tensor<2x2x128x128xbf16>) -> tensor<2x2x128x128xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %15 = stablehlo.reduce(%14 init: %cst_3) applies stablehlo.add across dimensions = [3] : (tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2] : (tensor<2x2x128xf32>) -> tensor<2x2x128x1xf32>
    %17 = stablehlo.convert %16 : (tensor<2x2x128x1xf32>) -> tensor<2x2x128x1xbf16>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xbf16>) -> tensor<2x2x128x128xbf16>
    %19 = stablehlo.divide %13, %18 : tensor<2x2x128x128xbf16>
    %20 = stablehlo.dot_general %19, %arg2, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x2x128x128xbf16>, tensor<2x2x128x8xbf16>) -> tensor<2x2x128x8xbf16>
    return %20 : tensor<2x2x128x8xbf16>
  }
  func.func private @tril(%arg0: tensor<128x128xi1>) -> tensor<128x128xi1> {
    %0 = stablehlo.iota dim = 0 : tensor<128x128xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<128x128xi32>
    %2 = stablehlo.add %0, %1 : tensor<128x128xi32>
    %3 = stablehlo.iota dim = 1 : tensor<128x128xi32>
    %4 = stablehlo.compare GE, %2, %3, SIGNED : (tensor<128x128xi32>, tensor<128x128xi32>) -> tensor<128x128xi1>
    %c_0 = stablehlo.constant dense<false> : tensor<i1>
    %5 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i1>) -> tensor<128x128xi1>
    %6 = stablehlo.select %4, %arg0, %5 : tensor<128x128xi1>, tensor<128x128xi1>
    return %6 : tensor<128x128xi1>
  }
  func.func private @_where(%arg0: tensor<128x128xi1>, %arg1: tensor<2x2x128x128xbf16>, %arg2: tensor<f32>) -> tensor<2x2x128x128xbf16> {
    %0 = stablehlo.convert %arg2 : (tensor<f32>) -> tensor<bf16>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<bf16>) -> tensor<128x128xbf16>
    %2 = stablehlo.broadcast_in_dim %arg0, dims = [1, 2] : (tensor<128x128xi1>) -> tensor<2x128x128xi1>
    %3 = stablehlo.broadcast_in_dim %1, dims = [1, 2] : (tensor<128x128xbf16>) -> tensor<2x128x128xbf16>
    %4 = stablehlo.broadcast_in_dim %2, dims = [1, 2, 3] : (tensor<2x128x128xi1>) -> tensor<2x2x128x128xi1>
    %5 = stablehlo.broadcast_in_dim %3, dims = [1, 2, 3] : (tensor<2x128x128xbf16>) -> tensor<2x2x128x128xbf16>
    %6 = stablehlo.select %4, %arg1, %5 : tensor<2x2x128x128xi1>, tensor<2x2x128x128xbf16>
    return %6 : tensor<2x2x128x128xbf16>
  }
}
