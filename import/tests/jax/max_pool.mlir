module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x4x6x2xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<1x2x3x2xf32> {jax.result_info = "result[1]"}) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<f32>
    %1 = "stablehlo.reduce_window"(%arg0, %0) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %8 = stablehlo.maximum %arg1, %arg2 : tensor<f32>
      stablehlo.return %8 : tensor<f32>
    }) : (tensor<1x4x6x2xf32>, tensor<f32>) -> tensor<1x2x3x2xf32>
    %2 = stablehlo.iota dim = 0 : tensor<12xf32>
    %3 = stablehlo.cosine %2 : tensor<12xf32>
    %4 = stablehlo.reshape %3 : (tensor<12xf32>) -> tensor<1x2x3x2xf32>
    %5 = stablehlo.multiply %1, %4 : tensor<1x2x3x2xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.reduce(%5 init: %cst_0) applies stablehlo.add across dimensions = [0, 1, 2, 3] : (tensor<1x2x3x2xf32>, tensor<f32>) -> tensor<f32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.add %cst_1, %6 : tensor<f32>
    return %7, %1 : tensor<f32>, tensor<1x2x3x2xf32>
  }
}
