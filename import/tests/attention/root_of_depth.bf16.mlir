module @jit_root_of_depth attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x2x128x8xbf16>, %arg1: tensor<2x2x128x8xbf16>, %arg2: tensor<2x2x128x8xbf16>) -> (tensor<2x2x128x8xbf16> {jax.result_info = "result"}) {
    %0 = stablehlo.iota dim = 0 : tensor<128xi32>
    %1 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x2x128x8xbf16>, tensor<2x2x128x8xbf16>) -> tensor<2x2x128x128xbf16>
    %cst = stablehlo.constant dense<8.000000e+00> : tensor<bf16>
    %2 = stablehlo.sqrt %cst : tensor<bf16>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<bf16>) -> tensor<2x2x128x128xbf16>
    %4 = stablehlo.divide %1, %3 : tensor<2x2x128x128xbf16>
    %5 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<128xi32>) -> tensor<128x1xi32>
    %6 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<128xi32>) -> tensor<1x128xi32>
    %7 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<128x1xi32>) -> tensor<128x128xi32>
    %8 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<1x128xi32>) -> tensor<128x128xi32>
    %9 = stablehlo.compare GE, %7, %8, SIGNED : (tensor<128x128xi32>, tensor<128x128xi32>) -> tensor<128x128xi1>
    %cst_0 = stablehlo.constant dense<-3.389530e+38> : tensor<bf16>
    %10 = call @_where(%9, %4, %cst_0) : (tensor<128x128xi1>, tensor<2x2x128x128xbf16>, tensor<bf16>) -> tensor<2x2x128x128xbf16>
    %cst_1 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %11 = stablehlo.reduce(%10 init: %cst_1) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x128x128xbf16>, tensor<bf16>) -> tensor<2x2x128xbf16>
    %cst_2 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %12 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<bf16>) -> tensor<2x2x128xbf16>
    %13 = stablehlo.maximum %12, %11 : tensor<2x2x128xbf16>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1, 2] : (tensor<2x2x128xbf16>) -> tensor<2x2x128x1xbf16>
    %15 = stablehlo.broadcast_in_dim %14, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xbf16>) -> tensor<2x2x128x128xbf16>
    %16 = stablehlo.subtract %10, %15 : tensor<2x2x128x128xbf16>
    %17 = stablehlo.exponential %16 : tensor<2x2x128x128xbf16>
    %18 = stablehlo.convert %17 : (tensor<2x2x128x128xbf16>) -> tensor<2x2x128x128xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %19 = stablehlo.reduce(%18 init: %cst_3) applies stablehlo.add across dimensions = [3] : (tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [0, 1, 2] : (tensor<2x2x128xf32>) -> tensor<2x2x128x1xf32>
    %21 = stablehlo.convert %20 : (tensor<2x2x128x1xf32>) -> tensor<2x2x128x1xbf16>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xbf16>) -> tensor<2x2x128x128xbf16>
    %23 = stablehlo.divide %17, %22 : tensor<2x2x128x128xbf16>
    %24 = stablehlo.dot_general %23, %arg2, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x2x128x128xbf16>, tensor<2x2x128x8xbf16>) -> tensor<2x2x128x8xbf16>
    return %24 : tensor<2x2x128x8xbf16>
  }
  func.func private @_where(%arg0: tensor<128x128xi1>, %arg1: tensor<2x2x128x128xbf16>, %arg2: tensor<bf16>) -> tensor<2x2x128x128xbf16> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [2, 3] : (tensor<128x128xi1>) -> tensor<2x2x128x128xi1>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<bf16>) -> tensor<2x2x128x128xbf16>
    %2 = stablehlo.select %0, %arg1, %1 : tensor<2x2x128x128xi1>, tensor<2x2x128x128xbf16>
    return %2 : tensor<2x2x128x128xbf16>
  }
}
