module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<6xf32>, %arg1: tensor<6xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<6x3xf32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.convert %arg1 : (tensor<6xf32>) -> tensor<6xcomplex<f32>>
    %cst = stablehlo.constant dense<(0.000000e+00,1.000000e+00)> : tensor<complex<f32>>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<complex<f32>>) -> tensor<6xcomplex<f32>>
    %2 = stablehlo.multiply %1, %0 : tensor<6xcomplex<f32>>
    %3 = stablehlo.convert %arg0 : (tensor<6xf32>) -> tensor<6xcomplex<f32>>
    %4 = stablehlo.add %3, %2 : tensor<6xcomplex<f32>>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %5:2 = stablehlo.while(%iterArg = %c, %iterArg_3 = %4) : tensor<i32>, tensor<6xcomplex<f32>>
    cond {
      %c_4 = stablehlo.constant dense<3> : tensor<i32>
      %24 = stablehlo.compare LT, %iterArg, %c_4, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %24 : tensor<i1>
    } do {
      %24 = func.call @closed_call(%iterArg_3) : (tensor<6xcomplex<f32>>) -> tensor<6xcomplex<f32>>
      %c_4 = stablehlo.constant dense<1> : tensor<i32>
      %25 = stablehlo.add %iterArg, %c_4 : tensor<i32>
      stablehlo.return %25, %24 : tensor<i32>, tensor<6xcomplex<f32>>
    }
    %6 = stablehlo.broadcast_in_dim %5#1, dims = [0] : (tensor<6xcomplex<f32>>) -> tensor<6x1xcomplex<f32>>
    %7 = stablehlo.broadcast_in_dim %5#1, dims = [1] : (tensor<6xcomplex<f32>>) -> tensor<1x6xcomplex<f32>>
    %8 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<6x1xcomplex<f32>>) -> tensor<6x6xcomplex<f32>>
    %9 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<1x6xcomplex<f32>>) -> tensor<6x6xcomplex<f32>>
    %10 = stablehlo.multiply %8, %9 : tensor<6x6xcomplex<f32>>
    %cst_0 = stablehlo.constant dense<(1.000000e+00,0.000000e+00)> : tensor<complex<f32>>
    %11 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<complex<f32>>) -> tensor<6x3xcomplex<f32>>
    %12 = stablehlo.dot_general %10, %11, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<6x6xcomplex<f32>>, tensor<6x3xcomplex<f32>>) -> tensor<6x3xcomplex<f32>>
    %13 = call @fft(%12) : (tensor<6x3xcomplex<f32>>) -> tensor<6x3xcomplex<f32>>
    %14 = stablehlo.transpose %13, dims = [1, 0] : (tensor<6x3xcomplex<f32>>) -> tensor<3x6xcomplex<f32>>
    %15 = call @fft_0(%14) : (tensor<3x6xcomplex<f32>>) -> tensor<3x6xcomplex<f32>>
    %16 = stablehlo.transpose %15, dims = [1, 0] : (tensor<3x6xcomplex<f32>>) -> tensor<6x3xcomplex<f32>>
    %17 = stablehlo.abs %16 : (tensor<6x3xcomplex<f32>>) -> tensor<6x3xf32>
    %18 = stablehlo.iota dim = 0 : tensor<18xf32>
    %19 = stablehlo.cosine %18 : tensor<18xf32>
    %20 = stablehlo.reshape %19 : (tensor<18xf32>) -> tensor<6x3xf32>
    %21 = stablehlo.multiply %17, %20 : tensor<6x3xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %22 = stablehlo.reduce(%21 init: %cst_1) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x3xf32>, tensor<f32>) -> tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %23 = stablehlo.add %cst_2, %22 : tensor<f32>
    return %23, %17 : tensor<f32>, tensor<6x3xf32>
  }
  func.func private @closed_call(%arg0: tensor<6xcomplex<f32>>) -> tensor<6xcomplex<f32>> {
    %cst = stablehlo.constant dense<(5.000000e-01,5.000000e-01)> : tensor<complex<f32>>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<complex<f32>>) -> tensor<6xcomplex<f32>>
    %1 = stablehlo.multiply %arg0, %0 : tensor<6xcomplex<f32>>
    %cst_0 = stablehlo.constant dense<(0.000000e+00,0.000000e+00)> : tensor<complex<f32>>
    %2 = stablehlo.reduce(%arg0 init: %cst_0) applies stablehlo.add across dimensions = [0] : (tensor<6xcomplex<f32>>, tensor<complex<f32>>) -> tensor<complex<f32>>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<complex<f32>>) -> tensor<6xcomplex<f32>>
    %4 = stablehlo.add %1, %3 : tensor<6xcomplex<f32>>
    return %4 : tensor<6xcomplex<f32>>
  }
  func.func private @fft(%arg0: tensor<6x3xcomplex<f32>>) -> tensor<6x3xcomplex<f32>> {
    %0 = stablehlo.fft %arg0, type = FFT, length = [6, 3] : (tensor<6x3xcomplex<f32>>) -> tensor<6x3xcomplex<f32>>
    return %0 : tensor<6x3xcomplex<f32>>
  }
  func.func private @fft_0(%arg0: tensor<3x6xcomplex<f32>>) -> tensor<3x6xcomplex<f32>> {
    %0 = stablehlo.fft %arg0, type = IFFT, length = [6] : (tensor<3x6xcomplex<f32>>) -> tensor<3x6xcomplex<f32>>
    return %0 : tensor<3x6xcomplex<f32>>
  }
}
