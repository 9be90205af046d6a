// cuRAND: what hipRAND does not have.
extern "C" int curandSetGeneratorOrdering(void*, int) { return 0; }
