module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x2xf32>, %arg1: tensor<6x4xf32>, %arg2: tensor<6x2xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<4x2xf32> {jax.result_info = "result[1]"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:4 = stablehlo.while(%iterArg = %arg1, %iterArg_1 = %arg2, %iterArg_2 = %c, %iterArg_3 = %arg0) : tensor<6x4xf32>, tensor<6x2xf32>, tensor<i32>, tensor<4x2xf32>
    cond {
      %c_4 = stablehlo.constant dense<3> : tensor<i32>
      %7 = stablehlo.compare LT, %iterArg_2, %c_4, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %7 : tensor<i1>
    } do {
      %7 = func.call @closed_call(%iterArg, %iterArg_1, %iterArg_3) : (tensor<6x4xf32>, tensor<6x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
      %c_4 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %iterArg_2, %c_4 : tensor<i32>
      stablehlo.return %iterArg, %iterArg_1, %8, %7 : tensor<6x4xf32>, tensor<6x2xf32>, tensor<i32>, tensor<4x2xf32>
    }
    %1 = stablehlo.iota dim = 0 : tensor<8xf32>
    %2 = stablehlo.cosine %1 : tensor<8xf32>
    %3 = stablehlo.reshape %2 : (tensor<8xf32>) -> tensor<4x2xf32>
    %4 = stablehlo.multiply %0#3, %3 : tensor<4x2xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x2xf32>, tensor<f32>) -> tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.add %cst_0, %5 : tensor<f32>
    return %6, %0#3 : tensor<f32>, tensor<4x2xf32>
  }
  func.func private @closed_call(%arg0: tensor<6x4xf32>, %arg1: tensor<6x2xf32>, %arg2: tensor<4x2xf32>) -> tensor<4x2xf32> {
    %0 = stablehlo.dot_general %arg0, %arg2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<6x4xf32>, tensor<4x2xf32>) -> tensor<6x2xf32>
    %1 = stablehlo.tanh %0 : tensor<6x2xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x2xf32>
    %3 = stablehlo.subtract %2, %1 : tensor<6x2xf32>
    %4 = stablehlo.subtract %1, %arg1 : tensor<6x2xf32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<6x2xf32>
    %6 = stablehlo.multiply %5, %4 : tensor<6x2xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_2 = stablehlo.constant dense<1.200000e+01> : tensor<f32>
    %7 = stablehlo.divide %cst_1, %cst_2 : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<6x2xf32>
    %9 = stablehlo.multiply %8, %6 : tensor<6x2xf32>
    %10 = stablehlo.multiply %9, %3 : tensor<6x2xf32>
    %11 = stablehlo.multiply %10, %1 : tensor<6x2xf32>
    %12 = stablehlo.add %10, %11 : tensor<6x2xf32>
    %13 = stablehlo.dot_general %12, %arg0, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<6x2xf32>, tensor<6x4xf32>) -> tensor<2x4xf32>
    %14 = stablehlo.transpose %13, dims = [1, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>
    %cst_3 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4x2xf32>
    %16 = stablehlo.multiply %15, %arg2 : tensor<4x2xf32>
    %17 = stablehlo.add %14, %16 : tensor<4x2xf32>
    %cst_4 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %18 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<4x2xf32>
    %19 = stablehlo.multiply %18, %17 : tensor<4x2xf32>
    %20 = stablehlo.subtract %arg2, %19 : tensor<4x2xf32>
    return %20 : tensor<4x2xf32>
  }
}
