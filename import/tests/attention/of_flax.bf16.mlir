module @jit_of_flax attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x128x2x8xbf16>, %arg1: tensor<2x128x2x8xbf16>, %arg2: tensor<2x128x2x8xbf16>) -> (tensor<2x128x2x8xbf16> {jax.result_info = "result"}) {
    %0 = stablehlo.iota dim = 0 : tensor<128xi32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<128xi32>) -> tensor<2x128xi32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<2x128xi32>) -> tensor<2x128x1xi32>
    %3 = stablehlo.broadcast_in_dim %1, dims = [0, 2] : (tensor<2x128xi32>) -> tensor<2x1x128xi32>
    %4 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<2x128x1xi32>) -> tensor<2x128x128xi32>
    %5 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x1x128xi32>) -> tensor<2x128x128xi32>
    %6 = stablehlo.compare GE, %4, %5, SIGNED : (tensor<2x128x128xi32>, tensor<2x128x128xi32>) -> tensor<2x128x128xi1>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 2, 3] : (tensor<2x128x128xi1>) -> tensor<2x1x128x128xi1>
    %8 = stablehlo.convert %7 : (tensor<2x1x128x128xi1>) -> tensor<2x1x128x128xf32>
    %cst = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %9 = stablehlo.sqrt %cst : tensor<f32>
    %10 = stablehlo.convert %9 : (tensor<f32>) -> tensor<bf16>
    %11 = stablehlo.broadcast_in_dim %10, dims = [] : (tensor<bf16>) -> tensor<2x128x2x8xbf16>
    %12 = stablehlo.divide %arg0, %11 : tensor<2x128x2x8xbf16>
    %13 = stablehlo.dot_general %12, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x128x2x8xbf16>, tensor<2x128x2x8xbf16>) -> tensor<2x2x128x128xbf16>
    %cst_0 = stablehlo.constant dense<-3.389530e+38> : tensor<bf16>
    %14 = call @_where(%8, %13, %cst_0) : (tensor<2x1x128x128xf32>, tensor<2x2x128x128xbf16>, tensor<bf16>) -> tensor<2x2x128x128xbf16>
    %cst_1 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %15 = stablehlo.reduce(%14 init: %cst_1) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x128x128xbf16>, tensor<bf16>) -> tensor<2x2x128xbf16>
    %cst_2 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %16 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<bf16>) -> tensor<2x2x128xbf16>
    %17 = stablehlo.maximum %16, %15 : tensor<2x2x128xbf16>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 1, 2] : (tensor<2x2x128xbf16>) -> tensor<2x2x128x1xbf16>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xbf16>) -> tensor<2x2x128x128xbf16>
    %20 = stablehlo.subtract %14, %19 : tensor<2x2x128x128xbf16>
    %21 = stablehlo.exponential %20 : tensor<2x2x128x128xbf16>
    %22 = stablehlo.convert %21 : (tensor<2x2x128x128xbf16>) -> tensor<2x2x128x128xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %23 = stablehlo.reduce(%22 init: %cst_3) applies stablehlo.add across dimensions = [3] : (tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128xf32>
    %24 = stablehlo.broadcast_in_dim %23, dims = [0, 1, 2] : (tensor<2x2x128xf32>) -> tensor<2x2x128x1xf32>
    %25 = stablehlo.convert %24 : (tensor<2x2x128x1xf32>) -> tensor<2x2x128x1xbf16>
    %26 = stablehlo.broadcast_in_dim %25, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xbf16>) -> tensor<2x2x128x128xbf16>
    %27 = stablehlo.divide %21, %26 : tensor<2x2x128x128xbf16>
    %28 = stablehlo.dot_general %arg2, %27, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x128x2x8xbf16>, tensor<2x2x128x128xbf16>) -> tensor<2x2x8x128xbf16>
    %29 = stablehlo.transpose %28, dims = [0, 3, 1, 2] : (tensor<2x2x8x128xbf16>) -> tensor<2x128x2x8xbf16>
    return %29 : tensor<2x128x2x8xbf16>
  }
  func.func private @_where(%arg0: tensor<2x1x128x128xf32>, %arg1: tensor<2x2x128x128xbf16>, %arg2: tensor<bf16>) -> tensor<2x2x128x128xbf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x1x128x128xf32>
    %1 = stablehlo.compare NE, %arg0, %0, FLOAT : (tensor<2x1x128x128xf32>, tensor<2x1x128x128xf32>) -> tensor<2x1x128x128xi1>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2, 3] : (tensor<2x1x128x128xi1>) -> tensor<2x2x128x128xi1>
    %3 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<bf16>) -> tensor<2x2x128x128xbf16>
    %4 = stablehlo.select %2, %arg1, %3 : tensor<2x2x128x128xi1>, tensor<2x2x128x128xbf16>
    return %4 : tensor<2x2x128x128xbf16>
  }
}
