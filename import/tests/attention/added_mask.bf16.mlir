module @jit_added_mask attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x2x128x8xbf16>, %arg1: tensor<2x2x128x8xbf16>, %arg2: tensor<2x2x128x8xbf16>) -> (tensor<2x2x128x8xbf16> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x2x128x8xbf16>, tensor<2x2x128x8xbf16>) -> tensor<2x2x128x128xbf16>
    %cst = stablehlo.constant dense<2.828130e+00> : tensor<bf16>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<2x2x128x128xbf16>
    %2 = stablehlo.divide %0, %1 : tensor<2x2x128x128xbf16>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
    %4 = call @tril(%3) : (tensor<128x128xf32>) -> tensor<128x128xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
    %6 = stablehlo.compare EQ, %4, %5, FLOAT : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xi1>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_3 = stablehlo.constant dense<-1.000000e+10> : tensor<f32>
    %7 = call @_where(%6, %cst_2, %cst_3) : (tensor<128x128xi1>, tensor<f32>, tensor<f32>) -> tensor<128x128xf32>
    %8 = stablehlo.convert %7 : (tensor<128x128xf32>) -> tensor<128x128xbf16>
    %9 = stablehlo.broadcast_in_dim %8, dims = [2, 3] : (tensor<128x128xbf16>) -> tensor<1x1x128x128xbf16>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2, 3] : (tensor<1x1x128x128xbf16>) -> tensor<2x2x128x128xbf16>
    %11 = stablehlo.add %2, %10 : tensor<2x2x128x128xbf16>
    %cst_4 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %12 = stablehlo.reduce(%11 init: %cst_4) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x128x128xbf16>, tensor<bf16>) -> tensor<2x2x128xbf16>
    %cst_5 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %13 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<bf16>) -> tensor<2x2x128xbf16>
    %14 = stablehlo.maximum %13, %12 : tensor<2x2x128xbf16>
    %15 = stablehlo.broadcast_in_dim %14, dims = [0, 1, 2] : (tensor<2x2x128xbf16>) -> tensor<2x2x128x1xbf16>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xbf16>) -> tensor<2x2x128x128xbf16>
    %17 = stablehlo.subtract %11, %16 : tensor<2x2x128x128xbf16>
    %18 = stablehlo.exponential %17 : tensor<2x2x128x128xbf16>
    %19 = stablehlo.convert %18 : (tensor<2x2x128x128xbf16>) -> tensor<2x2x128x128xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %20 = stablehlo.reduce(%19 init: %cst_6) applies stablehlo.add across dimensions = [3] : (tensor<2x2x128x128xf32>, tensor<f32>) -> tensor<2x2x128xf32>
    %21 = stablehlo.broadcast_in_dim %20, dims = [0, 1, 2] : (tensor<2x2x128xf32>) -> tensor<2x2x128x1xf32>
    %22 = stablehlo.convert %21 : (tensor<2x2x128x1xf32>) -> tensor<2x2x128x1xbf16>
    %23 = stablehlo.broadcast_in_dim %22, dims = [0, 1, 2, 3] : (tensor<2x2x128x1xbf16>) -> tensor<2x2x128x128xbf16>
    %24 = stablehlo.divide %18, %23 : tensor<2x2x128x128xbf16>
    %25 = stablehlo.dot_general %24, %arg2, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x2x128x128xbf16>, tensor<2x2x128x8xbf16>) -> tensor<2x2x128x8xbf16>
    return %25 : tensor<2x2x128x8xbf16>
  }
  func.func private @tril(%arg0: tensor<128x128xf32>) -> tensor<128x128xf32> {
    %0 = stablehlo.iota dim = 0 : tensor<128x128xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<128x128xi32>
    %2 = stablehlo.add %0, %1 : tensor<128x128xi32>
    %3 = stablehlo.iota dim = 1 : tensor<128x128xi32>
    %4 = stablehlo.compare GE, %2, %3, SIGNED : (tensor<128x128xi32>, tensor<128x128xi32>) -> tensor<128x128xi1>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
    %6 = stablehlo.select %4, %arg0, %5 : tensor<128x128xi1>, tensor<128x128xf32>
    return %6 : tensor<128x128xf32>
  }
  func.func private @_where(%arg0: tensor<128x128xi1>, %arg1: tensor<f32>, %arg2: tensor<f32>) -> tensor<128x128xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
    %2 = stablehlo.select %arg0, %0, %1 : tensor<128x128xi1>, tensor<128x128xf32>
    return %2 : tensor<128x128xf32>
  }
}
