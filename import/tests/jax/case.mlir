module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<4xf32> {jax.result_info = "result[1]"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<2> : tensor<i32>
    %c_1 = stablehlo.constant dense<2> : tensor<i32>
    %0 = stablehlo.clamp %c, %c_0, %c_1 : tensor<i32>
    %1 = "stablehlo.case"(%0) ({
      %13 = stablehlo.sine %arg0 : tensor<4xf32>
      stablehlo.return %13 : tensor<4xf32>
    }, {
      %13 = stablehlo.cosine %arg0 : tensor<4xf32>
      stablehlo.return %13 : tensor<4xf32>
    }, {
      %13 = stablehlo.tanh %arg0 : tensor<4xf32>
      stablehlo.return %13 : tensor<4xf32>
    }) : (tensor<i32>) -> tensor<4xf32>
    %2 = stablehlo.slice %arg0 [0:1] : (tensor<4xf32>) -> tensor<1xf32>
    %3 = stablehlo.reshape %2 : (tensor<1xf32>) -> tensor<f32>
    %cst = stablehlo.constant dense<9.000000e+00> : tensor<f32>
    %4 = stablehlo.compare GT, %3, %cst, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.convert %4 : (tensor<i1>) -> tensor<i32>
    %6 = "stablehlo.case"(%5) ({
      %13 = stablehlo.exponential %arg0 : tensor<4xf32>
      stablehlo.return %13 : tensor<4xf32>
    }, {
      %13 = stablehlo.sine %arg0 : tensor<4xf32>
      stablehlo.return %13 : tensor<4xf32>
    }) : (tensor<i32>) -> tensor<4xf32>
    %7 = stablehlo.add %1, %6 : tensor<4xf32>
    %8 = stablehlo.iota dim = 0 : tensor<4xf32>
    %9 = stablehlo.cosine %8 : tensor<4xf32>
    %10 = stablehlo.multiply %7, %9 : tensor<4xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%10 init: %cst_2) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %12 = stablehlo.add %cst_3, %11 : tensor<f32>
    return %12, %7 : tensor<f32>, tensor<4xf32>
  }
}
