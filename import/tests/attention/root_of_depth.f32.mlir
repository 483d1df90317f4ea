module @jit_root_of_depth attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x2x128x8xf32>, %arg1: tensor<2x2x128x8xf32>, %arg2: tensor<2x2x128x8xf32>) -> (tensor<2x2x128x8xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.iota dim = 0 : tensor<128xi32>
    %1 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x2x128x8xf32>, tensor<2x2x128x8xf32>) -> tensor<2x2x128x128xf32>
    %cst = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %2 = stablehlo.sqrt %cst : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<2x2x128x128xf32>
    %4 = stablehlo.divide %1, %3 : tensor<2x2x128x128xf32>
    %5 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<128xi32>) -> tensor<128x1xi32>
    %6 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<128xi32>) -> tensor<1x128xi32>
    %7 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<128x1xi32>) -> tensor<128x128xi32>
    %8 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<1x128xi32>) -> tensor<128x128xi32>
    %9 = stablehlo.compare GE, %7, %8, SIGNED : (tensor<128x128xi32>, tensor<128x128xi32>) -> tensor<128x128xi1>
    %cst_0 = stablehlo.constant dense<-3.40282347E+38> : tensor<f32>
    %10 = call @_where(%9, %4, %cst_0) : (tensor<128x128xi1>, tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128x128xf32>
    %cst_1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %11 = stablehlo.reduce(%10 init: %cst_1) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128xf32>
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x2x128xf32>
    %13 = stablehlo.maximum %12, %11 : tensor<2x2x128xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1, 2] : (tensor<2x2x128xf32>) -> tensor<2x2x128x1xf32>
    %15 = stablehlo.broadcast_in_dim %14, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xf32>) -> tensor<2x2x128x128xf32>
    %16 = stablehlo.subtract %10, %15 : tensor<2x2x128x128xf32>
    %17 = stablehlo.exponential %16 : tensor<2x2x128x128xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %18 = stablehlo.reduce(%17 init: %cst_3) applies stablehlo.add across dimensions = [3] : (tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2] : (tensor<2x2x128xf32>) -> tensor<2x2x128x1xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xf32>) -> tensor<2x2x128x128xf32>
    %21 = stablehlo.divide %17, %20 : tensor<2x2x128x128xf32>
    %22 = stablehlo.dot_general %21, %arg2, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x2x128x128xf32>, tensor<2x2x128x8xf32>) -> tensor<2x2x128x8xf32>
    return %22 : tensor<2x2x128x8xf32>
  }
  func.func private @_where(%arg0: tensor<128x128xi1>, %arg1: tensor<2x2x128x128xf32>, %arg2: tensor<f32>) -> tensor<2x2x128x128xf32> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [2, 3] : (tensor<128x128xi1>) -> tensor<2x2x128x128xi1>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<2x2x128x128xf32>
    %2 = stablehlo.select %0, %arg1, %1 : tensor<2x2x128x128xi1>, tensor<2x2x128x128xf32>
    return %2 : tensor<2x2x128x128xf32>
  }
}
