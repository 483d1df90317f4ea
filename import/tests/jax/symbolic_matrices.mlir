module @jit_loss attributes {jax.uses_shape_polymorphism = true, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<?x4x4xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<?x4x4xf32> {jax.result_info = "result[1]"}, tensor<?x4x3xf32> {jax.result_info = "result[2]"}, tensor<?x2xf32> {jax.result_info = "result[3]"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x4x4xf32>) -> tensor<i32>
    %1 = stablehlo.compare GE, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%1, %0) {api_version = 2 : i32, error_message = "", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
    %2:4 = call @_wrapped_jax_export_main(%0, %arg0) : (tensor<i32>, tensor<?x4x4xf32>) -> (tensor<f32>, tensor<?x4x4xf32>, tensor<?x4x3xf32>, tensor<?x2xf32>)
    return %2#0, %2#1, %2#2, %2#3 : tensor<f32>, tensor<?x4x4xf32>, tensor<?x4x3xf32>, tensor<?x2xf32>
  }
  func.func private @_wrapped_jax_export_main(%arg0: tensor<i32> {jax.global_constant = "b"}, %arg1: tensor<?x4x4xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<?x4x4xf32> {jax.result_info = "result[1]"}, tensor<?x4x3xf32> {jax.result_info = "result[2]"}, tensor<?x2xf32> {jax.result_info = "result[3]"}) {
    %c = stablehlo.constant dense<3> : tensor<1xi32>
    %c_0 = stablehlo.constant dense<2> : tensor<1xi32>
    %c_1 = stablehlo.constant dense<1> : tensor<1xi32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %c_2 = stablehlo.constant dense<4> : tensor<1xi32>
    %cst_3 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.transpose %arg1, dims = [0, 2, 1] : (tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
    %1 = stablehlo.dot_general %arg1, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<?x4x4xf32>, tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
    %2 = stablehlo.iota dim = 0 : tensor<4x4xi32>
    %3 = stablehlo.iota dim = 1 : tensor<4x4xi32>
    %4 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<i32>) -> tensor<4x4xi32>
    %5 = stablehlo.add %2, %4 : tensor<4x4xi32>
    %6 = stablehlo.compare EQ, %5, %3, SIGNED : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi1>
    %7 = stablehlo.convert %6 : (tensor<4x4xi1>) -> tensor<4x4xf32>
    %8 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
    %9 = stablehlo.multiply %8, %7 : tensor<4x4xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [1, 2] : (tensor<4x4xf32>) -> tensor<1x4x4xf32>
    %11 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %12 = stablehlo.concatenate %11, %c_2, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %13 = stablehlo.dynamic_broadcast_in_dim %10, %12, dims = [0, 1, 2] : (tensor<1x4x4xf32>, tensor<3xi32>) -> tensor<?x4x4xf32>
    %14 = stablehlo.add %1, %13 : tensor<?x4x4xf32>
    %15 = call @cholesky(%arg0, %14) : (tensor<i32>, tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
    %16 = call @fft(%arg0, %arg1) : (tensor<i32>, tensor<?x4x4xf32>) -> tensor<?x4x3xcomplex<f32>>
    %17 = stablehlo.abs %16 : (tensor<?x4x3xcomplex<f32>>) -> tensor<?x4x3xf32>
    %18 = stablehlo.reduce(%15 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<?x4x4xf32>, tensor<f32>) -> tensor<?x4xf32>
    %19 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %20 = stablehlo.concatenate %19, %c_1, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %21 = stablehlo.dynamic_broadcast_in_dim %18, %20, dims = [0, 2] : (tensor<?x4xf32>, tensor<3xi32>) -> tensor<?x1x4xf32>
    %22 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %23 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %24 = stablehlo.concatenate %23, %c_0, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %25 = "stablehlo.dynamic_gather"(%arg1, %22, %24) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1, 2], start_index_map = [1]>, indices_are_sorted = true}> : (tensor<?x4x4xf32>, tensor<1xi32>, tensor<3xi32>) -> tensor<?x2x4xf32>
    %26 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %27 = stablehlo.concatenate %26, %c_0, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %28 = stablehlo.dynamic_broadcast_in_dim %21, %27, dims = [0, 1, 2] : (tensor<?x1x4xf32>, tensor<3xi32>) -> tensor<?x2x4xf32>
    %29 = stablehlo.subtract %28, %25 : tensor<?x2x4xf32>
    %30 = call @argmin(%arg0, %29) : (tensor<i32>, tensor<?x2x4xf32>) -> tensor<?x2xi32>
    %31 = stablehlo.convert %30 : (tensor<?x2xi32>) -> tensor<?x2xf32>
    %32 = stablehlo.iota dim = 0 : tensor<4xf32>
    %33 = stablehlo.cosine %32 : tensor<4xf32>
    %34 = stablehlo.broadcast_in_dim %33, dims = [2] : (tensor<4xf32>) -> tensor<1x1x4xf32>
    %35 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %36 = stablehlo.concatenate %35, %c_2, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %37 = stablehlo.dynamic_broadcast_in_dim %34, %36, dims = [0, 1, 2] : (tensor<1x1x4xf32>, tensor<3xi32>) -> tensor<?x4x4xf32>
    %38 = stablehlo.multiply %15, %37 : tensor<?x4x4xf32>
    %39 = stablehlo.reduce(%38 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<?x4x4xf32>, tensor<f32>) -> tensor<f32>
    %40 = stablehlo.add %cst, %39 : tensor<f32>
    %41 = stablehlo.iota dim = 0 : tensor<3xf32>
    %42 = stablehlo.cosine %41 : tensor<3xf32>
    %43 = stablehlo.broadcast_in_dim %42, dims = [2] : (tensor<3xf32>) -> tensor<1x1x3xf32>
    %44 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %45 = stablehlo.concatenate %44, %c_2, %c, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %46 = stablehlo.dynamic_broadcast_in_dim %43, %45, dims = [0, 1, 2] : (tensor<1x1x3xf32>, tensor<3xi32>) -> tensor<?x4x3xf32>
    %47 = stablehlo.multiply %17, %46 : tensor<?x4x3xf32>
    %48 = stablehlo.reduce(%47 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<?x4x3xf32>, tensor<f32>) -> tensor<f32>
    %49 = stablehlo.add %40, %48 : tensor<f32>
    %50 = stablehlo.iota dim = 0 : tensor<2xf32>
    %51 = stablehlo.cosine %50 : tensor<2xf32>
    %52 = stablehlo.broadcast_in_dim %51, dims = [1] : (tensor<2xf32>) -> tensor<1x2xf32>
    %53 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %54 = stablehlo.concatenate %53, %c_0, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %55 = stablehlo.dynamic_broadcast_in_dim %52, %54, dims = [0, 1] : (tensor<1x2xf32>, tensor<2xi32>) -> tensor<?x2xf32>
    %56 = stablehlo.multiply %31, %55 : tensor<?x2xf32>
    %57 = stablehlo.reduce(%56 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<?x2xf32>, tensor<f32>) -> tensor<f32>
    %58 = stablehlo.add %49, %57 : tensor<f32>
    return %58, %15, %17, %31 : tensor<f32>, tensor<?x4x4xf32>, tensor<?x4x3xf32>, tensor<?x2xf32>
  }
  func.func private @cholesky(%arg0: tensor<i32> {jax.global_constant = "b"}, %arg1: tensor<?x4x4xf32>) -> tensor<?x4x4xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %c = stablehlo.constant dense<1> : tensor<1xi32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %c_2 = stablehlo.constant dense<4> : tensor<1xi32>
    %cst_3 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %0 = stablehlo.transpose %arg1, dims = [0, 2, 1] : (tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
    %1 = stablehlo.add %arg1, %0 : tensor<?x4x4xf32>
    %2 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %3 = stablehlo.concatenate %2, %c_2, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %4 = stablehlo.dynamic_broadcast_in_dim %cst_3, %3, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x4x4xf32>
    %5 = stablehlo.divide %1, %4 : tensor<?x4x4xf32>
    %6 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %7 = stablehlo.concatenate %6, %c_2, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %8 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %9:2 = stablehlo.custom_call @lapack_spotrf_ffi(%5, %7, %8) {indices_of_shape_operands = dense<[1, 2]> : tensor<2xi64>, mhlo.backend_config = {uplo = 76 : ui8}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>]} : (tensor<?x4x4xf32>, tensor<3xi32>, tensor<1xi32>) -> (tensor<?x4x4xf32>, tensor<?xi32>)
    %10 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %11 = stablehlo.dynamic_broadcast_in_dim %c_1, %10, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
    %12 = stablehlo.compare EQ, %9#1, %11, SIGNED : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi1>
    %13 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %14 = stablehlo.concatenate %13, %c, %c, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %15 = stablehlo.dynamic_broadcast_in_dim %12, %14, dims = [0] : (tensor<?xi1>, tensor<3xi32>) -> tensor<?x1x1xi1>
    %16 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %17 = stablehlo.concatenate %16, %c_2, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %18 = stablehlo.dynamic_broadcast_in_dim %cst_0, %17, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x4x4xf32>
    %19 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %20 = stablehlo.concatenate %19, %c_2, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %21 = stablehlo.dynamic_broadcast_in_dim %15, %20, dims = [0, 1, 2] : (tensor<?x1x1xi1>, tensor<3xi32>) -> tensor<?x4x4xi1>
    %22 = stablehlo.select %21, %9#0, %18 : tensor<?x4x4xi1>, tensor<?x4x4xf32>
    %23 = stablehlo.iota dim = 0 : tensor<4x4xi32>
    %24 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<4x4xi32>
    %25 = stablehlo.add %23, %24 : tensor<4x4xi32>
    %26 = stablehlo.iota dim = 1 : tensor<4x4xi32>
    %27 = stablehlo.compare GE, %25, %26, SIGNED : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi1>
    %28 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %29 = stablehlo.concatenate %28, %c_2, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %30 = stablehlo.dynamic_broadcast_in_dim %27, %29, dims = [1, 2] : (tensor<4x4xi1>, tensor<3xi32>) -> tensor<?x4x4xi1>
    %31 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %32 = stablehlo.concatenate %31, %c_2, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %33 = stablehlo.dynamic_broadcast_in_dim %cst, %32, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x4x4xf32>
    %34 = stablehlo.select %30, %22, %33 : tensor<?x4x4xi1>, tensor<?x4x4xf32>
    return %34 : tensor<?x4x4xf32>
  }
  func.func private @fft(%arg0: tensor<i32> {jax.global_constant = "b"}, %arg1: tensor<?x4x4xf32>) -> tensor<?x4x3xcomplex<f32>> {
    %0 = stablehlo.fft %arg1, type = RFFT, length = [4] : (tensor<?x4x4xf32>) -> tensor<?x4x3xcomplex<f32>>
    return %0 : tensor<?x4x3xcomplex<f32>>
  }
  func.func private @argmin(%arg0: tensor<i32>, %arg1: tensor<?x2x4xf32>) -> tensor<?x2xi32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %c_0 = stablehlo.constant dense<4> : tensor<1xi32>
    %c_1 = stablehlo.constant dense<2> : tensor<1xi32>
    %0 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %1 = stablehlo.concatenate %0, %c_1, %c_0, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %2 = stablehlo.dynamic_iota %1, dim = 2 : (tensor<3xi32>) -> tensor<?x2x4xi32>
    %3:2 = stablehlo.reduce(%arg1 init: %cst), (%2 init: %c) across dimensions = [2] : (tensor<?x2x4xf32>, tensor<?x2x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<?x2xf32>, tensor<?x2xi32>)
     reducer(%arg2: tensor<f32>, %arg4: tensor<f32>) (%arg3: tensor<i32>, %arg5: tensor<i32>)  {
      %4 = stablehlo.compare LT, %arg2, %arg4, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %5 = stablehlo.compare NE, %arg2, %arg2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %6 = stablehlo.or %4, %5 : tensor<i1>
      %7 = stablehlo.compare EQ, %arg2, %arg4, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %8 = stablehlo.compare LT, %arg3, %arg5, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %9 = stablehlo.and %7, %8 : tensor<i1>
      %10 = stablehlo.or %6, %9 : tensor<i1>
      %11 = stablehlo.select %6, %arg2, %arg4 : tensor<i1>, tensor<f32>
      %12 = stablehlo.select %10, %arg3, %arg5 : tensor<i1>, tensor<i32>
      stablehlo.return %11, %12 : tensor<f32>, tensor<i32>
    }
    return %3#1 : tensor<?x2xi32>
  }
}

