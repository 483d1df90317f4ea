module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x5xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<3x5xf32> {jax.result_info = "result[1]"}, tensor<3x5xf32> {jax.result_info = "result[2]"}, tensor<4xf32> {jax.result_info = "result[3]"}) {
    %c = stablehlo.constant dense<[5, 7, 9, 11]> : tensor<4xui32>
    %0 = stablehlo.reshape %c : (tensor<4xui32>) -> tensor<2x2xui32>
    %1 = stablehlo.bitcast_convert %0 : (tensor<2x2xui32>) -> tensor<2xui64>
    %output_state, %output = stablehlo.rng_bit_generator %1, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>)
    %2 = stablehlo.bitcast_convert %output_state : (tensor<2xui64>) -> tensor<2x2xui32>
    %3 = stablehlo.reshape %2 : (tensor<2x2xui32>) -> tensor<4xui32>
    %c_0 = stablehlo.constant dense<8> : tensor<ui32>
    %4 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<ui32>) -> tensor<3x5xui32>
    %5 = stablehlo.shift_right_logical %output, %4 : tensor<3x5xui32>
    %6 = stablehlo.convert %5 : (tensor<3x5xui32>) -> tensor<3x5xf32>
    %cst = stablehlo.constant dense<0x4B800000> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3x5xf32>
    %8 = stablehlo.divide %6, %7 : tensor<3x5xf32>
    %9 = stablehlo.reshape %3 : (tensor<4xui32>) -> tensor<2x2xui32>
    %10 = stablehlo.bitcast_convert %9 : (tensor<2x2xui32>) -> tensor<2xui64>
    %output_state_1, %output_2 = stablehlo.rng_bit_generator %10, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>)
    %11 = stablehlo.bitcast_convert %output_state_1 : (tensor<2xui64>) -> tensor<2x2xui32>
    %12 = stablehlo.reshape %11 : (tensor<2x2xui32>) -> tensor<4xui32>
    %c_3 = stablehlo.constant dense<8> : tensor<ui32>
    %13 = stablehlo.broadcast_in_dim %c_3, dims = [] : (tensor<ui32>) -> tensor<3x5xui32>
    %14 = stablehlo.shift_right_logical %output_2, %13 : tensor<3x5xui32>
    %15 = stablehlo.convert %14 : (tensor<3x5xui32>) -> tensor<3x5xf32>
    %cst_4 = stablehlo.constant dense<0x4B800000> : tensor<f32>
    %16 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<3x5xf32>
    %17 = stablehlo.divide %15, %16 : tensor<3x5xf32>
    %18 = stablehlo.multiply %arg0, %8 : tensor<3x5xf32>
    %19 = stablehlo.add %arg0, %17 : tensor<3x5xf32>
    %c_5 = stablehlo.constant dense<8> : tensor<ui32>
    %20 = stablehlo.broadcast_in_dim %c_5, dims = [] : (tensor<ui32>) -> tensor<4xui32>
    %21 = stablehlo.shift_right_logical %12, %20 : tensor<4xui32>
    %22 = stablehlo.convert %21 : (tensor<4xui32>) -> tensor<4xf32>
    %cst_6 = stablehlo.constant dense<0x4B800000> : tensor<f32>
    %23 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %24 = stablehlo.divide %22, %23 : tensor<4xf32>
    %25 = stablehlo.iota dim = 0 : tensor<15xf32>
    %26 = stablehlo.cosine %25 : tensor<15xf32>
    %27 = stablehlo.reshape %26 : (tensor<15xf32>) -> tensor<3x5xf32>
    %28 = stablehlo.multiply %18, %27 : tensor<3x5xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %29 = stablehlo.reduce(%28 init: %cst_7) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x5xf32>, tensor<f32>) -> tensor<f32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %30 = stablehlo.add %cst_8, %29 : tensor<f32>
    %31 = stablehlo.iota dim = 0 : tensor<15xf32>
    %32 = stablehlo.cosine %31 : tensor<15xf32>
    %33 = stablehlo.reshape %32 : (tensor<15xf32>) -> tensor<3x5xf32>
    %34 = stablehlo.multiply %19, %33 : tensor<3x5xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %35 = stablehlo.reduce(%34 init: %cst_9) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x5xf32>, tensor<f32>) -> tensor<f32>
    %36 = stablehlo.add %30, %35 : tensor<f32>
    %37 = stablehlo.iota dim = 0 : tensor<4xf32>
    %38 = stablehlo.cosine %37 : tensor<4xf32>
    %39 = stablehlo.multiply %24, %38 : tensor<4xf32>
    %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %40 = stablehlo.reduce(%39 init: %cst_10) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %41 = stablehlo.add %36, %40 : tensor<f32>
    return %41, %18, %19, %24 : tensor<f32>, tensor<3x5xf32>, tensor<3x5xf32>, tensor<4xf32>
  }
}
