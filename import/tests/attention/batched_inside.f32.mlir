module @jit_batched_inside attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x128x2x8xf32>, %arg1: tensor<2x128x2x8xf32>, %arg2: tensor<2x128x2x8xf32>) -> (tensor<2x128x2x8xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<true> : tensor<i1>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i1>) -> tensor<128x128xi1>
    %1 = call @tril(%0) : (tensor<128x128xi1>) -> tensor<128x128xi1>
    %2 = stablehlo.transpose %arg1, dims = [0, 2, 3, 1] : (tensor<2x128x2x8xf32>) -> tensor<2x2x8x128xf32>
    %3 = stablehlo.dot_general %arg0, %2, batching_dims = [0, 2] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x128x2x8xf32>, tensor<2x2x8x128xf32>) -> tensor<2x2x128x128xf32>
    %cst = stablehlo.constant dense<2.82842708> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2x128x128xf32>
    %5 = stablehlo.divide %3, %4 : tensor<2x2x128x128xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %6 = call @_where(%1, %5, %cst_0) : (tensor<128x128xi1>, tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128x128xf32>
    %cst_1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128xf32>
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x2x128xf32>
    %9 = stablehlo.maximum %8, %7 : tensor<2x2x128xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<2x2x128xf32>) -> tensor<2x2x128x1xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xf32>) -> tensor<2x2x128x128xf32>
    %12 = stablehlo.subtract %6, %11 : tensor<2x2x128x128xf32>
    %13 = stablehlo.exponential %12 : tensor<2x2x128x128xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %14 = stablehlo.reduce(%13 init: %cst_3) applies stablehlo.add across dimensions = [3] : (tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128xf32>
    %15 = stablehlo.broadcast_in_dim %14, dims = [0, 1, 2] : (tensor<2x2x128xf32>) -> tensor<2x2x128x1xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xf32>) -> tensor<2x2x128x128xf32>
    %17 = stablehlo.divide %13, %16 : tensor<2x2x128x128xf32>
    %18 = stablehlo.dot_general %17, %arg2, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x2x128x128xf32>, tensor<2x128x2x8xf32>) -> tensor<2x2x128x8xf32>
    %19 = stablehlo.transpose %18, dims = [0, 2, 1, 3] : (tensor<2x2x128x8xf32>) -> tensor<2x128x2x8xf32>
    return %19 : tensor<2x128x2x8xf32>
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
  func.func private @_where(%arg0: tensor<128x128xi1>, %arg1: tensor<2x2x128x128xf32>, %arg2: tensor<f32>) -> tensor<2x2x128x128xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
    %2 = stablehlo.broadcast_in_dim %arg0, dims = [1, 2] : (tensor<128x128xi1>) -> tensor<2x128x128xi1>
    %3 = stablehlo.broadcast_in_dim %1, dims = [1, 2] : (tensor<128x128xf32>) -> tensor<2x128x128xf32>
    %4 = stablehlo.broadcast_in_dim %2, dims = [1, 2, 3] : (tensor<2x128x128xi1>) -> tensor<2x2x128x128xi1>
    %5 = stablehlo.broadcast_in_dim %3, dims = [1, 2, 3] : (tensor<2x128x128xf32>) -> tensor<2x2x128x128xf32>
    %6 = stablehlo.select %4, %arg1, %5 : tensor<2x2x128x128xi1>, tensor<2x2x128x128xf32>
    return %6 : tensor<2x2x128x128xf32>
  }
}
