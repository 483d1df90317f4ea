module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<6x3xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<6x3xf32> {jax.result_info = "result[1]"}) {
    %0 = call @cumsum(%arg0) : (tensor<6x3xf32>) -> tensor<6x3xf32>
    %1 = stablehlo.iota dim = 0 : tensor<18xf32>
    %2 = stablehlo.cosine %1 : tensor<18xf32>
    %3 = stablehlo.reshape %2 : (tensor<18xf32>) -> tensor<6x3xf32>
    %4 = stablehlo.multiply %0, %3 : tensor<6x3xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x3xf32>, tensor<f32>) -> tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.add %cst_0, %5 : tensor<f32>
    return %6, %0 : tensor<f32>, tensor<6x3xf32>
  }
  func.func private @cumsum(%arg0: tensor<6x3xf32>) -> tensor<6x3xf32> {
    %0 = call @cumsum_0(%arg0) : (tensor<6x3xf32>) -> tensor<6x3xf32>
    return %0 : tensor<6x3xf32>
  }
  func.func private @cumsum_0(%arg0: tensor<6x3xf32>) -> tensor<6x3xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<f32>
    %1 = "stablehlo.reduce_window"(%arg0, %0) <{base_dilations = array<i64: 1, 1>, padding = dense<[[5, 0], [0, 0]]> : tensor<2x2xi64>, window_dilations = array<i64: 1, 1>, window_dimensions = array<i64: 6, 1>, window_strides = array<i64: 1, 1>}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %2 = stablehlo.add %arg1, %arg2 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<6x3xf32>, tensor<f32>) -> tensor<6x3xf32>
    return %1 : tensor<6x3xf32>
  }
}
