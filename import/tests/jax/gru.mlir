module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<6x3xf32>, %arg1: tensor<3x6xf32>, %arg2: tensor<2x6xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<6x2xf32> {jax.result_info = "result[1]"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<6x2xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %2:6 = stablehlo.while(%iterArg = %arg0, %iterArg_3 = %arg1, %iterArg_4 = %arg2, %iterArg_5 = %c, %iterArg_6 = %0, %iterArg_7 = %1) : tensor<6x3xf32>, tensor<3x6xf32>, tensor<2x6xf32>, tensor<i32>, tensor<2xf32>, tensor<6x2xf32>
    cond {
      %c_8 = stablehlo.constant dense<6> : tensor<i32>
      %9 = stablehlo.compare LT, %iterArg_5, %c_8, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    } do {
      %9 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_5) : (tensor<6x3xf32>, tensor<i32>) -> tensor<3xf32>
      %10:2 = func.call @closed_call(%iterArg_3, %iterArg_4, %iterArg_6, %9) : (tensor<3x6xf32>, tensor<2x6xf32>, tensor<2xf32>, tensor<3xf32>) -> (tensor<2xf32>, tensor<2xf32>)
      %11 = func.call @dynamic_update_index_in_dim(%iterArg_7, %10#1, %iterArg_5) : (tensor<6x2xf32>, tensor<2xf32>, tensor<i32>) -> tensor<6x2xf32>
      %c_8 = stablehlo.constant dense<1> : tensor<i32>
      %12 = stablehlo.add %iterArg_5, %c_8 : tensor<i32>
      stablehlo.return %iterArg, %iterArg_3, %iterArg_4, %12, %10#0, %11 : tensor<6x3xf32>, tensor<3x6xf32>, tensor<2x6xf32>, tensor<i32>, tensor<2xf32>, tensor<6x2xf32>
    }
    %3 = stablehlo.iota dim = 0 : tensor<12xf32>
    %4 = stablehlo.cosine %3 : tensor<12xf32>
    %5 = stablehlo.reshape %4 : (tensor<12xf32>) -> tensor<6x2xf32>
    %6 = stablehlo.multiply %2#5, %5 : tensor<6x2xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x2xf32>, tensor<f32>) -> tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %8 = stablehlo.add %cst_2, %7 : tensor<f32>
    return %8, %2#5 : tensor<f32>, tensor<6x2xf32>
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<6x3xf32>, %arg1: tensor<i32>) -> tensor<3xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, sizes = [1, 3] : (tensor<6x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x3xf32>) -> tensor<3xf32>
    return %1 : tensor<3xf32>
  }
  func.func private @closed_call(%arg0: tensor<3x6xf32>, %arg1: tensor<2x6xf32>, %arg2: tensor<2xf32>, %arg3: tensor<3xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
    %0 = stablehlo.dot_general %arg3, %arg0, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3xf32>, tensor<3x6xf32>) -> tensor<6xf32>
    %1 = stablehlo.slice %0 [0:2] : (tensor<6xf32>) -> tensor<2xf32>
    %2 = stablehlo.slice %0 [2:4] : (tensor<6xf32>) -> tensor<2xf32>
    %3 = stablehlo.slice %0 [4:6] : (tensor<6xf32>) -> tensor<2xf32>
    %4 = stablehlo.dot_general %arg2, %arg1, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2xf32>, tensor<2x6xf32>) -> tensor<6xf32>
    %5 = stablehlo.slice %4 [0:2] : (tensor<6xf32>) -> tensor<2xf32>
    %6 = stablehlo.slice %4 [2:4] : (tensor<6xf32>) -> tensor<2xf32>
    %7 = stablehlo.slice %4 [4:6] : (tensor<6xf32>) -> tensor<2xf32>
    %8 = stablehlo.add %2, %6 : tensor<2xf32>
    %9 = stablehlo.negate %8 : tensor<2xf32>
    %10 = stablehlo.exponential %9 : tensor<2xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %12 = stablehlo.add %11, %10 : tensor<2xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %13 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %14 = stablehlo.divide %13, %12 : tensor<2xf32>
    %15 = stablehlo.slice %arg3 [0:1] : (tensor<3xf32>) -> tensor<1xf32>
    %16 = stablehlo.reshape %15 : (tensor<1xf32>) -> tensor<f32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %17 = stablehlo.compare GT, %16, %cst_1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %18 = stablehlo.convert %17 : (tensor<i1>) -> tensor<i32>
    %19 = "stablehlo.case"(%18) ({
      stablehlo.return %arg2 : tensor<2xf32>
    }, {
      %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %20 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2xf32>
      %21 = stablehlo.subtract %20, %14 : tensor<2xf32>
      %22 = stablehlo.add %1, %5 : tensor<2xf32>
      %23 = stablehlo.negate %22 : tensor<2xf32>
      %24 = stablehlo.exponential %23 : tensor<2xf32>
      %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %25 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2xf32>
      %26 = stablehlo.add %25, %24 : tensor<2xf32>
      %cst_4 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %27 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2xf32>
      %28 = stablehlo.divide %27, %26 : tensor<2xf32>
      %29 = stablehlo.multiply %28, %7 : tensor<2xf32>
      %30 = stablehlo.add %3, %29 : tensor<2xf32>
      %31 = stablehlo.tanh %30 : tensor<2xf32>
      %32 = stablehlo.multiply %21, %31 : tensor<2xf32>
      %33 = stablehlo.multiply %14, %arg2 : tensor<2xf32>
      %34 = stablehlo.add %32, %33 : tensor<2xf32>
      stablehlo.return %34 : tensor<2xf32>
    }) : (tensor<i32>) -> tensor<2xf32>
    return %19, %19 : tensor<2xf32>, tensor<2xf32>
  }
  func.func private @dynamic_update_index_in_dim(%arg0: tensor<6x2xf32>, %arg1: tensor<2xf32>, %arg2: tensor<i32>) -> tensor<6x2xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<2xf32>) -> tensor<1x2xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c : (tensor<6x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<6x2xf32>
    return %1 : tensor<6x2xf32>
  }
}
