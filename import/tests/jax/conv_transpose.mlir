module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x3x4x2xf32>, %arg1: tensor<3x3x2x3xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<1x6x8x3xf32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[2, 1], [2, 1]], lhs_dilate = [2, 2], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x3x4x2xf32>, tensor<3x3x2x3xf32>) -> tensor<1x6x8x3xf32>
    %1 = stablehlo.iota dim = 0 : tensor<144xf32>
    %2 = stablehlo.cosine %1 : tensor<144xf32>
    %3 = stablehlo.reshape %2 : (tensor<144xf32>) -> tensor<1x6x8x3xf32>
    %4 = stablehlo.multiply %0, %3 : tensor<1x6x8x3xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2, 3] : (tensor<1x6x8x3xf32>, tensor<f32>) -> tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.add %cst_0, %5 : tensor<f32>
    return %6, %0 : tensor<f32>, tensor<1x6x8x3xf32>
  }
}
