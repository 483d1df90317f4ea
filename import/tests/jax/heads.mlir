module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x8xf32>, %arg1: tensor<3x8x2x4xf32>, %arg2: tensor<2x4x8xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<5x8xf32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<3x8x2x4xf32>, tensor<5x8xf32>) -> tensor<3x2x4x5xf32>
    %1 = stablehlo.transpose %0, dims = [0, 1, 3, 2] : (tensor<3x2x4x5xf32>) -> tensor<3x2x5x4xf32>
    %2 = stablehlo.slice %1 [0:1, 0:2, 0:5, 0:4] : (tensor<3x2x5x4xf32>) -> tensor<1x2x5x4xf32>
    %3 = stablehlo.reshape %2 : (tensor<1x2x5x4xf32>) -> tensor<2x5x4xf32>
    %4 = stablehlo.slice %1 [1:2, 0:2, 0:5, 0:4] : (tensor<3x2x5x4xf32>) -> tensor<1x2x5x4xf32>
    %5 = stablehlo.reshape %4 : (tensor<1x2x5x4xf32>) -> tensor<2x5x4xf32>
    %6 = stablehlo.slice %1 [2:3, 0:2, 0:5, 0:4] : (tensor<3x2x5x4xf32>) -> tensor<1x2x5x4xf32>
    %7 = stablehlo.reshape %6 : (tensor<1x2x5x4xf32>) -> tensor<2x5x4xf32>
    %8 = stablehlo.dot_general %3, %5, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> tensor<2x5x5xf32>
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x5xf32>
    %10 = stablehlo.divide %8, %9 : tensor<2x5x5xf32>
    %11 = stablehlo.iota dim = 0 : tensor<5xi32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %13 = stablehlo.iota dim = 0 : tensor<5xi32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [1] : (tensor<5xi32>) -> tensor<1x5xi32>
    %15 = stablehlo.broadcast_in_dim %12, dims = [0, 1] : (tensor<5x1xi32>) -> tensor<5x5xi32>
    %16 = stablehlo.broadcast_in_dim %14, dims = [0, 1] : (tensor<1x5xi32>) -> tensor<5x5xi32>
    %17 = stablehlo.compare GE, %15, %16, SIGNED : (tensor<5x5xi32>, tensor<5x5xi32>) -> tensor<5x5xi1>
    %cst_0 = stablehlo.constant dense<-1.000000e+09> : tensor<f32>
    %18 = call @_where(%17, %10, %cst_0) : (tensor<5x5xi1>, tensor<2x5x5xf32>, tensor<f32>) -> tensor<2x5x5xf32>
    %cst_1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %19 = stablehlo.reduce(%18 init: %cst_1) applies stablehlo.maximum across dimensions = [2] : (tensor<2x5x5xf32>, tensor<f32>) -> tensor<2x5xf32>
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %20 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x5xf32>
    %21 = stablehlo.maximum %20, %19 : tensor<2x5xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %23 = stablehlo.broadcast_in_dim %22, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x5xf32>
    %24 = stablehlo.subtract %18, %23 : tensor<2x5x5xf32>
    %25 = stablehlo.exponential %24 : tensor<2x5x5xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %26 = stablehlo.reduce(%25 init: %cst_3) applies stablehlo.add across dimensions = [2] : (tensor<2x5x5xf32>, tensor<f32>) -> tensor<2x5xf32>
    %27 = stablehlo.broadcast_in_dim %26, dims = [0, 1] : (tensor<2x5xf32>) -> tensor<2x5x1xf32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0, 1, 2] : (tensor<2x5x1xf32>) -> tensor<2x5x5xf32>
    %29 = stablehlo.divide %25, %28 : tensor<2x5x5xf32>
    %30 = stablehlo.dot_general %7, %29, batching_dims = [0] x [0], contracting_dims = [1] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x5x4xf32>, tensor<2x5x5xf32>) -> tensor<2x4x5xf32>
    %31 = stablehlo.dot_general %30, %arg2, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<2x4x5xf32>, tensor<2x4x8xf32>) -> tensor<5x8xf32>
    %32 = stablehlo.iota dim = 0 : tensor<40xf32>
    %33 = stablehlo.cosine %32 : tensor<40xf32>
    %34 = stablehlo.reshape %33 : (tensor<40xf32>) -> tensor<5x8xf32>
    %35 = stablehlo.multiply %31, %34 : tensor<5x8xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %36 = stablehlo.reduce(%35 init: %cst_4) applies stablehlo.add across dimensions = [0, 1] : (tensor<5x8xf32>, tensor<f32>) -> tensor<f32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %37 = stablehlo.add %cst_5, %36 : tensor<f32>
    return %37, %31 : tensor<f32>, tensor<5x8xf32>
  }
  func.func private @_where(%arg0: tensor<5x5xi1>, %arg1: tensor<2x5x5xf32>, %arg2: tensor<f32>) -> tensor<2x5x5xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [1, 2] : (tensor<5x5xi1>) -> tensor<2x5x5xi1>
    %2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x5x5xf32>
    %3 = stablehlo.select %1, %arg1, %2 : tensor<2x5x5xi1>, tensor<2x5x5xf32>
    return %3 : tensor<2x5x5xf32>
  }
}
