module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x12xf32>, %arg1: tensor<2x12xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<2x12xf32> {jax.result_info = "result[1]"}) {
    %0 = call @fft(%arg0) : (tensor<2x12xf32>) -> tensor<2x7xcomplex<f32>>
    %1 = call @fft(%arg1) : (tensor<2x12xf32>) -> tensor<2x7xcomplex<f32>>
    %2 = stablehlo.multiply %0, %1 : tensor<2x7xcomplex<f32>>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %3 = call @_pad(%2, %c) : (tensor<2x7xcomplex<f32>>, tensor<i32>) -> tensor<2x7xcomplex<f32>>
    %4 = call @fft_0(%3) : (tensor<2x7xcomplex<f32>>) -> tensor<2x12xf32>
    %5 = stablehlo.iota dim = 0 : tensor<24xf32>
    %6 = stablehlo.cosine %5 : tensor<24xf32>
    %7 = stablehlo.reshape %6 : (tensor<24xf32>) -> tensor<2x12xf32>
    %8 = stablehlo.multiply %4, %7 : tensor<2x12xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x12xf32>, tensor<f32>) -> tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %10 = stablehlo.add %cst_0, %9 : tensor<f32>
    return %10, %4 : tensor<f32>, tensor<2x12xf32>
  }
  func.func private @fft(%arg0: tensor<2x12xf32>) -> tensor<2x7xcomplex<f32>> {
    %0 = stablehlo.fft %arg0, type = RFFT, length = [12] : (tensor<2x12xf32>) -> tensor<2x7xcomplex<f32>>
    return %0 : tensor<2x7xcomplex<f32>>
  }
  func.func private @_pad(%arg0: tensor<2x7xcomplex<f32>>, %arg1: tensor<i32>) -> tensor<2x7xcomplex<f32>> {
    %0 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<complex<f32>>
    %1 = stablehlo.pad %arg0, %0, low = [0, 0], high = [0, 0], interior = [0, 0] : (tensor<2x7xcomplex<f32>>, tensor<complex<f32>>) -> tensor<2x7xcomplex<f32>>
    return %1 : tensor<2x7xcomplex<f32>>
  }
  func.func private @fft_0(%arg0: tensor<2x7xcomplex<f32>>) -> tensor<2x12xf32> {
    %0 = stablehlo.fft %arg0, type = IRFFT, length = [12] : (tensor<2x7xcomplex<f32>>) -> tensor<2x12xf32>
    return %0 : tensor<2x12xf32>
  }
}
