module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x3xf32>, %arg1: tensor<3x8xf32>, %arg2: tensor<2x8xf32>, %arg3: tensor<8xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<5x2xf32> {jax.result_info = "result[1]"}, tensor<2xf32> {jax.result_info = "result[2]"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<5x2xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %3:8 = stablehlo.while(%iterArg = %arg0, %iterArg_5 = %arg1, %iterArg_6 = %arg2, %iterArg_7 = %arg3, %iterArg_8 = %c, %iterArg_9 = %0, %iterArg_10 = %1, %iterArg_11 = %2) : tensor<5x3xf32>, tensor<3x8xf32>, tensor<2x8xf32>, tensor<8xf32>, tensor<i32>, tensor<2xf32>, tensor<2xf32>, tensor<5x2xf32>
    cond {
      %c_12 = stablehlo.constant dense<5> : tensor<i32>
      %15 = stablehlo.compare LT, %iterArg_8, %c_12, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %15 : tensor<i1>
    } do {
      %15 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_8) : (tensor<5x3xf32>, tensor<i32>) -> tensor<3xf32>
      %16:3 = func.call @closed_call(%iterArg_5, %iterArg_6, %iterArg_7, %iterArg_9, %iterArg_10, %15) : (tensor<3x8xf32>, tensor<2x8xf32>, tensor<8xf32>, tensor<2xf32>, tensor<2xf32>, tensor<3xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
      %17 = func.call @dynamic_update_index_in_dim(%iterArg_11, %16#2, %iterArg_8) : (tensor<5x2xf32>, tensor<2xf32>, tensor<i32>) -> tensor<5x2xf32>
      %c_12 = stablehlo.constant dense<1> : tensor<i32>
      %18 = stablehlo.add %iterArg_8, %c_12 : tensor<i32>
      stablehlo.return %iterArg, %iterArg_5, %iterArg_6, %iterArg_7, %18, %16#0, %16#1, %17 : tensor<5x3xf32>, tensor<3x8xf32>, tensor<2x8xf32>, tensor<8xf32>, tensor<i32>, tensor<2xf32>, tensor<2xf32>, tensor<5x2xf32>
    }
    %4 = stablehlo.iota dim = 0 : tensor<10xf32>
    %5 = stablehlo.cosine %4 : tensor<10xf32>
    %6 = stablehlo.reshape %5 : (tensor<10xf32>) -> tensor<5x2xf32>
    %7 = stablehlo.multiply %3#7, %6 : tensor<5x2xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %8 = stablehlo.reduce(%7 init: %cst_2) applies stablehlo.add across dimensions = [0, 1] : (tensor<5x2xf32>, tensor<f32>) -> tensor<f32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.add %cst_3, %8 : tensor<f32>
    %10 = stablehlo.iota dim = 0 : tensor<2xf32>
    %11 = stablehlo.cosine %10 : tensor<2xf32>
    %12 = stablehlo.multiply %3#6, %11 : tensor<2xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %13 = stablehlo.reduce(%12 init: %cst_4) applies stablehlo.add across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
    %14 = stablehlo.add %9, %13 : tensor<f32>
    return %14, %3#7, %3#6 : tensor<f32>, tensor<5x2xf32>, tensor<2xf32>
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<5x3xf32>, %arg1: tensor<i32>) -> tensor<3xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, sizes = [1, 3] : (tensor<5x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x3xf32>) -> tensor<3xf32>
    return %1 : tensor<3xf32>
  }
  func.func private @closed_call(%arg0: tensor<3x8xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<2xf32>, %arg4: tensor<2xf32>, %arg5: tensor<3xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
    %0 = stablehlo.dot_general %arg5, %arg0, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3xf32>, tensor<3x8xf32>) -> tensor<8xf32>
    %1 = stablehlo.dot_general %arg3, %arg1, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2xf32>, tensor<2x8xf32>) -> tensor<8xf32>
    %2 = stablehlo.add %0, %1 : tensor<8xf32>
    %3 = stablehlo.add %2, %arg2 : tensor<8xf32>
    %4 = stablehlo.slice %3 [0:2] : (tensor<8xf32>) -> tensor<2xf32>
    %5 = stablehlo.slice %3 [2:4] : (tensor<8xf32>) -> tensor<2xf32>
    %6 = stablehlo.slice %3 [4:6] : (tensor<8xf32>) -> tensor<2xf32>
    %7 = stablehlo.slice %3 [6:8] : (tensor<8xf32>) -> tensor<2xf32>
    %8 = stablehlo.negate %5 : tensor<2xf32>
    %9 = stablehlo.exponential %8 : tensor<2xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %11 = stablehlo.add %10, %9 : tensor<2xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %13 = stablehlo.divide %12, %11 : tensor<2xf32>
    %14 = stablehlo.multiply %13, %arg4 : tensor<2xf32>
    %15 = stablehlo.negate %4 : tensor<2xf32>
    %16 = stablehlo.exponential %15 : tensor<2xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %17 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %18 = stablehlo.add %17, %16 : tensor<2xf32>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %19 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %20 = stablehlo.divide %19, %18 : tensor<2xf32>
    %21 = stablehlo.tanh %6 : tensor<2xf32>
    %22 = stablehlo.multiply %20, %21 : tensor<2xf32>
    %23 = stablehlo.add %14, %22 : tensor<2xf32>
    %24 = stablehlo.negate %7 : tensor<2xf32>
    %25 = stablehlo.exponential %24 : tensor<2xf32>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %27 = stablehlo.add %26, %25 : tensor<2xf32>
    %cst_4 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %28 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %29 = stablehlo.divide %28, %27 : tensor<2xf32>
    %30 = stablehlo.tanh %23 : tensor<2xf32>
    %31 = stablehlo.multiply %29, %30 : tensor<2xf32>
    return %31, %23, %31 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  }
  func.func private @dynamic_update_index_in_dim(%arg0: tensor<5x2xf32>, %arg1: tensor<2xf32>, %arg2: tensor<i32>) -> tensor<5x2xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<2xf32>) -> tensor<1x2xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c : (tensor<5x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<5x2xf32>
    return %1 : tensor<5x2xf32>
  }
}
