module @jit_of_flax attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x128x2x8xf32>, %arg1: tensor<2x128x2x8xf32>, %arg2: tensor<2x128x2x8xf32>) -> (tensor<2x128x2x8xf32> {jax.result_info = "result"}) {
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
    %10 = stablehlo.convert %9 : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [] : (tensor<f32>) -> tensor<2x128x2x8xf32>
    %12 = stablehlo.divide %arg0, %11 : tensor<2x128x2x8xf32>
    %13 = stablehlo.dot_general %12, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x128x2x8xf32>, tensor<2x128x2x8xf32>) -> tensor<2x2x128x128xf32>
    %cst_0 = stablehlo.constant dense<-3.40282347E+38> : tensor<f32>
    %14 = call @_where(%8, %13, %cst_0) : (tensor<2x1x128x128xf32>, tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128x128xf32>
    %cst_1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %15 = stablehlo.reduce(%14 init: %cst_1) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128xf32>
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %16 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x2x128xf32>
    %17 = stablehlo.maximum %16, %15 : tensor<2x2x128xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 1, 2] : (tensor<2x2x128xf32>) -> tensor<2x2x128x1xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xf32>) -> tensor<2x2x128x128xf32>
    %20 = stablehlo.subtract %14, %19 : tensor<2x2x128x128xf32>
    %21 = stablehlo.exponential %20 : tensor<2x2x128x128xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %22 = stablehlo.reduce(%21 init: %cst_3) applies stablehlo.add across dimensions = [3] : (tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128xf32>
    %23 = stablehlo.broadcast_in_dim %22, dims = [0, 1, 2] : (tensor<2x2x128xf32>) -> tensor<2x2x128x1xf32>
    %24 = stablehlo.broadcast_in_dim %23, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xf32>) -> tensor<2x2x128x128xf32>
    %25 = stablehlo.divide %21, %24 : tensor<2x2x128x128xf32>
    %26 = stablehlo.dot_general %arg2, %25, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x128x2x8xf32>, tensor<2x2x128x128xf32>) -> tensor<2x2x8x128xf32>
    %27 = stablehlo.transpose %26, dims = [0, 3, 1, 2] : (tensor<2x2x8x128xf32>) -> tensor<2x128x2x8xf32>
    return %27 : tensor<2x128x2x8xf32>
  }
  func.func private @_where(%arg0: tensor<2x1x128x128xf32>, %arg1: tensor<2x2x128x128xf32>, %arg2: tensor<f32>) -> tensor<2x2x128x128xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x1x128x128xf32>
    %1 = stablehlo.compare NE, %arg0, %0, FLOAT : (tensor<2x1x128x128xf32>, tensor<2x1x128x128xf32>) -> tensor<2x1x128x128xi1>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2, 3] : (tensor<2x1x128x128xi1>) -> tensor<2x2x128x128xi1>
    %3 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<2x2x128x128xf32>
    %4 = stablehlo.select %2, %arg1, %3 : tensor<2x2x128x128xi1>, tensor<2x2x128x128xf32>
    return %4 : tensor<2x2x128x128xf32>
  }
}
