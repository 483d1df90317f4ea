module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x3xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<4x3xf32> {jax.result_info = "result[1]"}) {
    %c = stablehlo.constant dense<[0, 2, 2, 4]> : tensor<4xi32>
    %c_0 = stablehlo.constant dense<false> : tensor<4xi1>
    %c_1 = stablehlo.constant dense<5> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %1 = stablehlo.add %c, %0 : tensor<4xi32>
    %2 = stablehlo.select %c_0, %1, %c : tensor<4xi1>, tensor<4xi32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
    %4 = "stablehlo.gather"(%arg0, %3) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 3>}> : (tensor<5x3xf32>, tensor<4x1xi32>) -> tensor<4x3xf32>
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
    %6 = stablehlo.multiply %4, %5 : tensor<4x3xf32>
    %7 = stablehlo.iota dim = 0 : tensor<12xf32>
    %8 = stablehlo.cosine %7 : tensor<12xf32>
    %9 = stablehlo.reshape %8 : (tensor<12xf32>) -> tensor<4x3xf32>
    %10 = stablehlo.multiply %6, %9 : tensor<4x3xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%10 init: %cst_2) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<f32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %12 = stablehlo.add %cst_3, %11 : tensor<f32>
    return %12, %6 : tensor<f32>, tensor<4x3xf32>
  }
}
