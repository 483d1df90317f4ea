module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x6xf32>, %arg1: tensor<6xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<4x6xf32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<6xf32>) -> tensor<1x6xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<1x6xf32>) -> tensor<4x6xf32>
    %2 = stablehlo.multiply %1, %arg0 : tensor<4x6xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<4x6xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<4xf32>) -> tensor<4x1xf32>
    %cst_0 = stablehlo.constant dense<6.000000e+00> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x1xf32>
    %7 = stablehlo.divide %5, %6 : tensor<4x1xf32>
    %cst_1 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<4x1xf32>
    %9 = stablehlo.add %7, %8 : tensor<4x1xf32>
    %10 = stablehlo.rsqrt %9 : tensor<4x1xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x6xf32>
    %12 = stablehlo.multiply %2, %11 : tensor<4x6xf32>
    %13 = stablehlo.iota dim = 0 : tensor<4xi32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
    %15 = stablehlo.iota dim = 0 : tensor<3xi32>
    %16 = stablehlo.negate %15 : tensor<3xi32>
    %cst_2 = stablehlo.constant dense<1.000000e+01> : tensor<f32>
    %17 = stablehlo.convert %16 : (tensor<3xi32>) -> tensor<3xf32>
    %18 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<3xf32>
    %19 = stablehlo.power %18, %17 : tensor<3xf32>
    %20 = stablehlo.convert %14 : (tensor<4x1xi32>) -> tensor<4x1xf32>
    %21 = stablehlo.broadcast_in_dim %19, dims = [1] : (tensor<3xf32>) -> tensor<1x3xf32>
    %22 = stablehlo.broadcast_in_dim %20, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x3xf32>
    %23 = stablehlo.broadcast_in_dim %21, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<4x3xf32>
    %24 = stablehlo.multiply %22, %23 : tensor<4x3xf32>
    %25 = stablehlo.slice %12 [0:4, 0:3] : (tensor<4x6xf32>) -> tensor<4x3xf32>
    %26 = stablehlo.slice %12 [0:4, 3:6] : (tensor<4x6xf32>) -> tensor<4x3xf32>
    %27 = stablehlo.cosine %24 : tensor<4x3xf32>
    %28 = stablehlo.multiply %25, %27 : tensor<4x3xf32>
    %29 = stablehlo.sine %24 : tensor<4x3xf32>
    %30 = stablehlo.multiply %26, %29 : tensor<4x3xf32>
    %31 = stablehlo.subtract %28, %30 : tensor<4x3xf32>
    %32 = stablehlo.sine %24 : tensor<4x3xf32>
    %33 = stablehlo.multiply %25, %32 : tensor<4x3xf32>
    %34 = stablehlo.cosine %24 : tensor<4x3xf32>
    %35 = stablehlo.multiply %26, %34 : tensor<4x3xf32>
    %36 = stablehlo.add %33, %35 : tensor<4x3xf32>
    %37 = stablehlo.concatenate %31, %36, dim = 1 : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x6xf32>
    %38 = stablehlo.iota dim = 0 : tensor<24xf32>
    %39 = stablehlo.cosine %38 : tensor<24xf32>
    %40 = stablehlo.reshape %39 : (tensor<24xf32>) -> tensor<4x6xf32>
    %41 = stablehlo.multiply %37, %40 : tensor<4x6xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %42 = stablehlo.reduce(%41 init: %cst_3) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x6xf32>, tensor<f32>) -> tensor<f32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %43 = stablehlo.add %cst_4, %42 : tensor<f32>
    return %43, %37 : tensor<f32>, tensor<4x6xf32>
  }
}
