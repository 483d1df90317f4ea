module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<3xf32> {jax.result_info = "result[1]"}) {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0:2 = stablehlo.while(%iterArg = %cst, %iterArg_2 = %arg0) : tensor<f32>, tensor<3xf32>
    cond {
      %cst_3 = stablehlo.constant dense<1.000000e+01> : tensor<f32>
      %6 = stablehlo.compare LT, %iterArg, %cst_3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %6 : tensor<i1>
    } do {
      %cst_3 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %6 = stablehlo.multiply %iterArg, %cst_3 : tensor<f32>
      %7 = stablehlo.convert %iterArg : tensor<f32>
      %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<3xf32>
      %9 = stablehlo.add %iterArg_2, %8 : tensor<3xf32>
      stablehlo.return %6, %9 : tensor<f32>, tensor<3xf32>
    }
    %1 = stablehlo.iota dim = 0 : tensor<3xf32>
    %2 = stablehlo.cosine %1 : tensor<3xf32>
    %3 = stablehlo.multiply %0#1, %2 : tensor<3xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.add %cst_1, %4 : tensor<f32>
    return %5, %0#1 : tensor<f32>, tensor<3xf32>
  }
}
