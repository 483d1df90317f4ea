module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<6x2xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<6x2xf32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.slice %arg0 [0:5:2, 0:2] : (tensor<6x2xf32>) -> tensor<3x2xf32>
    %1 = stablehlo.slice %arg0 [1:6:2, 0:2] : (tensor<6x2xf32>) -> tensor<3x2xf32>
    %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3x2xf32>
    %3 = stablehlo.multiply %0, %2 : tensor<3x2xf32>
    %4 = stablehlo.add %3, %1 : tensor<3x2xf32>
    %5 = stablehlo.slice %4 [0:2:2, 0:2] : (tensor<3x2xf32>) -> tensor<1x2xf32>
    %6 = stablehlo.slice %4 [1:3:2, 0:2] : (tensor<3x2xf32>) -> tensor<1x2xf32>
    %cst_0 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<1x2xf32>
    %8 = stablehlo.multiply %5, %7 : tensor<1x2xf32>
    %9 = stablehlo.add %8, %6 : tensor<1x2xf32>
    %10 = stablehlo.slice %4 [2:3:2, 0:2] : (tensor<3x2xf32>) -> tensor<1x2xf32>
    %cst_1 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<1x2xf32>
    %12 = stablehlo.multiply %9, %11 : tensor<1x2xf32>
    %13 = stablehlo.add %12, %10 : tensor<1x2xf32>
    %14 = stablehlo.slice %4 [0:1, 0:2] : (tensor<3x2xf32>) -> tensor<1x2xf32>
    %15 = stablehlo.concatenate %14, %13, dim = 0 : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %16 = stablehlo.pad %15, %cst_2, low = [0, 0], high = [0, 0], interior = [1, 0] : (tensor<2x2xf32>, tensor<f32>) -> tensor<3x2xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %17 = stablehlo.pad %9, %cst_3, low = [1, 0], high = [1, 0], interior = [1, 0] : (tensor<1x2xf32>, tensor<f32>) -> tensor<3x2xf32>
    %18 = stablehlo.add %16, %17 : tensor<3x2xf32>
    %19 = stablehlo.slice %18 [0:2, 0:2] : (tensor<3x2xf32>) -> tensor<2x2xf32>
    %20 = stablehlo.slice %arg0 [2:6:2, 0:2] : (tensor<6x2xf32>) -> tensor<2x2xf32>
    %cst_4 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %21 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
    %22 = stablehlo.multiply %19, %21 : tensor<2x2xf32>
    %23 = stablehlo.add %22, %20 : tensor<2x2xf32>
    %24 = stablehlo.slice %arg0 [0:1, 0:2] : (tensor<6x2xf32>) -> tensor<1x2xf32>
    %25 = stablehlo.concatenate %24, %23, dim = 0 : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %26 = stablehlo.pad %25, %cst_5, low = [0, 0], high = [1, 0], interior = [1, 0] : (tensor<3x2xf32>, tensor<f32>) -> tensor<6x2xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %27 = stablehlo.pad %18, %cst_6, low = [1, 0], high = [0, 0], interior = [1, 0] : (tensor<3x2xf32>, tensor<f32>) -> tensor<6x2xf32>
    %28 = stablehlo.add %26, %27 : tensor<6x2xf32>
    %29 = stablehlo.iota dim = 0 : tensor<12xf32>
    %30 = stablehlo.cosine %29 : tensor<12xf32>
    %31 = stablehlo.reshape %30 : (tensor<12xf32>) -> tensor<6x2xf32>
    %32 = stablehlo.multiply %28, %31 : tensor<6x2xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %33 = stablehlo.reduce(%32 init: %cst_7) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x2xf32>, tensor<f32>) -> tensor<f32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %34 = stablehlo.add %cst_8, %33 : tensor<f32>
    return %34, %28 : tensor<f32>, tensor<6x2xf32>
  }
}
