module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x2x5x5xf32>, %arg1: tensor<2x2x3x3xf32>, %arg2: tensor<2x2x3x3xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<1x2x5x5xf32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x2x5x5xf32>, tensor<2x2x3x3xf32>) -> tensor<1x2x5x5xf32>
    %1 = call @relu(%0) : (tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %2 = stablehlo.convolution(%1, %arg2) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x2x5x5xf32>, tensor<2x2x3x3xf32>) -> tensor<1x2x5x5xf32>
    %3 = stablehlo.add %arg0, %2 : tensor<1x2x5x5xf32>
    %4 = call @relu(%3) : (tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32>
    %5 = stablehlo.iota dim = 0 : tensor<50xf32>
    %6 = stablehlo.cosine %5 : tensor<50xf32>
    %7 = stablehlo.reshape %6 : (tensor<50xf32>) -> tensor<1x2x5x5xf32>
    %8 = stablehlo.multiply %4, %7 : tensor<1x2x5x5xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2, 3] : (tensor<1x2x5x5xf32>, tensor<f32>) -> tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %10 = stablehlo.add %cst_0, %9 : tensor<f32>
    return %10, %4 : tensor<f32>, tensor<1x2x5x5xf32>
  }
  func.func private @relu(%arg0: tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x2x5x5xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<1x2x5x5xf32>
    return %1 : tensor<1x2x5x5xf32>
  }
}
