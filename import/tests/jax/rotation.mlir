module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<8xf32> {jax.result_info = "result[1]"}, tensor<8xf32> {jax.result_info = "result[2]"}, tensor<8xf32> {jax.result_info = "result[3]"}, tensor<8xf32> {jax.result_info = "result[4]"}) {
    %0 = stablehlo.convert %arg1 : (tensor<4xf32>) -> tensor<4xcomplex<f32>>
    %cst = stablehlo.constant dense<(0.000000e+00,1.000000e+00)> : tensor<complex<f32>>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<complex<f32>>) -> tensor<4xcomplex<f32>>
    %2 = stablehlo.multiply %1, %0 : tensor<4xcomplex<f32>>
    %3 = stablehlo.convert %arg0 : (tensor<4xf32>) -> tensor<4xcomplex<f32>>
    %4 = stablehlo.add %3, %2 : tensor<4xcomplex<f32>>
    %5 = stablehlo.convert %arg2 : (tensor<4xf32>) -> tensor<4xcomplex<f32>>
    %cst_0 = stablehlo.constant dense<(0.000000e+00,1.000000e+00)> : tensor<complex<f32>>
    %6 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<complex<f32>>) -> tensor<4xcomplex<f32>>
    %7 = stablehlo.multiply %6, %5 : tensor<4xcomplex<f32>>
    %8 = stablehlo.exponential %7 : tensor<4xcomplex<f32>>
    %9 = stablehlo.multiply %4, %8 : tensor<4xcomplex<f32>>
    %10 = stablehlo.convert %arg0 : (tensor<4xf32>) -> tensor<4xcomplex<f32>>
    %cst_1 = stablehlo.constant dense<(0.000000e+00,1.000000e+00)> : tensor<complex<f32>>
    %11 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<complex<f32>>) -> tensor<4xcomplex<f32>>
    %12 = stablehlo.multiply %11, %10 : tensor<4xcomplex<f32>>
    %cst_2 = stablehlo.constant dense<(2.000000e+00,0.000000e+00)> : tensor<complex<f32>>
    %13 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<complex<f32>>) -> tensor<4xcomplex<f32>>
    %14 = stablehlo.subtract %13, %12 : tensor<4xcomplex<f32>>
    %15 = stablehlo.divide %9, %14 : tensor<4xcomplex<f32>>
    %16 = stablehlo.real %15 : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
    %17 = stablehlo.imag %15 : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
    %18 = stablehlo.negate %17 : tensor<4xf32>
    %19 = stablehlo.complex %16, %18 : tensor<4xcomplex<f32>>
    %20 = stablehlo.concatenate %15, %19, dim = 0 : (tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>) -> tensor<8xcomplex<f32>>
    %21 = stablehlo.reverse %20, dims = [0] : tensor<8xcomplex<f32>>
    %22 = stablehlo.real %21 : (tensor<8xcomplex<f32>>) -> tensor<8xf32>
    %23 = stablehlo.imag %21 : (tensor<8xcomplex<f32>>) -> tensor<8xf32>
    %24 = stablehlo.abs %21 : (tensor<8xcomplex<f32>>) -> tensor<8xf32>
    %25 = stablehlo.imag %21 : (tensor<8xcomplex<f32>>) -> tensor<8xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %27 = stablehlo.compare EQ, %25, %26, FLOAT : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
    %cst_4 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_5 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %28 = call @_where(%27, %cst_4, %cst_5) : (tensor<8xi1>, tensor<f32>, tensor<f32>) -> tensor<8xf32>
    %29 = stablehlo.iota dim = 0 : tensor<8xf32>
    %30 = stablehlo.cosine %29 : tensor<8xf32>
    %31 = stablehlo.multiply %22, %30 : tensor<8xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %32 = stablehlo.reduce(%31 init: %cst_6) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %33 = stablehlo.add %cst_7, %32 : tensor<f32>
    %34 = stablehlo.iota dim = 0 : tensor<8xf32>
    %35 = stablehlo.cosine %34 : tensor<8xf32>
    %36 = stablehlo.multiply %23, %35 : tensor<8xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %37 = stablehlo.reduce(%36 init: %cst_8) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    %38 = stablehlo.add %33, %37 : tensor<f32>
    %39 = stablehlo.iota dim = 0 : tensor<8xf32>
    %40 = stablehlo.cosine %39 : tensor<8xf32>
    %41 = stablehlo.multiply %24, %40 : tensor<8xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %42 = stablehlo.reduce(%41 init: %cst_9) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    %43 = stablehlo.add %38, %42 : tensor<f32>
    %44 = stablehlo.iota dim = 0 : tensor<8xf32>
    %45 = stablehlo.cosine %44 : tensor<8xf32>
    %46 = stablehlo.convert %28 : tensor<8xf32>
    %47 = stablehlo.multiply %46, %45 : tensor<8xf32>
    %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %48 = stablehlo.reduce(%47 init: %cst_10) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    %49 = stablehlo.add %43, %48 : tensor<f32>
    return %49, %22, %23, %24, %28 : tensor<f32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  }
  func.func private @_where(%arg0: tensor<8xi1>, %arg1: tensor<f32>, %arg2: tensor<f32>) -> tensor<8xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %2 = stablehlo.select %arg0, %0, %1 : tensor<8xi1>, tensor<8xf32>
    return %2 : tensor<8xf32>
  }
}
