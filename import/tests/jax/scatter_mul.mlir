module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x2xf32>, %arg1: tensor<2x2xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<5x2xf32> {jax.result_info = "result[1]"}) {
    %c = stablehlo.constant dense<[2, 4]> : tensor<2xi32>
    %c_0 = stablehlo.constant dense<false> : tensor<2xi1>
    %c_1 = stablehlo.constant dense<5> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %1 = stablehlo.add %c, %0 : tensor<2xi32>
    %2 = stablehlo.select %c_0, %1, %c : tensor<2xi1>, tensor<2xi32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<2xi32>) -> tensor<2x1xi32>
    %4 = "stablehlo.scatter"(%arg0, %3, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %11 = stablehlo.multiply %arg2, %arg3 : tensor<f32>
      stablehlo.return %11 : tensor<f32>
    }) : (tensor<5x2xf32>, tensor<2x1xi32>, tensor<2x2xf32>) -> tensor<5x2xf32>
    %5 = stablehlo.iota dim = 0 : tensor<10xf32>
    %6 = stablehlo.cosine %5 : tensor<10xf32>
    %7 = stablehlo.reshape %6 : (tensor<10xf32>) -> tensor<5x2xf32>
    %8 = stablehlo.multiply %4, %7 : tensor<5x2xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<5x2xf32>, tensor<f32>) -> tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %10 = stablehlo.add %cst_2, %9 : tensor<f32>
    return %10, %4 : tensor<f32>, tensor<5x2xf32>
  }
}
