// cuBLAS: what CuPy asks of its handle and hipBLAS does not have.
extern "C" {

int cublasGetVersion_v2(void*, int* version) {
  *version = 120200;
  return 0;
}

int cublasSetMathMode(void*, int) { return 0; }

int cublasGetMathMode(void*, int* mode) {
  *mode = 0;
  return 0;
}
}
