// The functions of the public HIP API that the simulated device has: those that CuPy's wheel for ROCm 7 calls, and
// memory pools and virtual memory, which other programs call.
#pragma once

#include "hip_types.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- devices ---------------------------------------------------------------------------------------------------------

hipError_t hipGetDeviceCount(int* count);
hipError_t hipGetDevice(int* device);
hipError_t hipSetDevice(int device);
hipError_t hipDevicePrimaryCtxGetState(hipDevice_t device, unsigned int* flags, int* active);
hipError_t hipDriverGetVersion(int* version);
hipError_t hipRuntimeGetVersion(int* version);
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipDeviceGetPCIBusId(char* id, int length, int device);
hipError_t hipDeviceGetByPCIBusId(int* device, const char* id);
hipError_t hipDeviceGetLimit(size_t* value, enum hipLimit_t limit);
hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest);
hipError_t hipDeviceSynchronize(void);
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags);
hipError_t hipDeviceDisablePeerAccess(int peer);

hipError_t hipGetLastError(void);
hipError_t hipPeekAtLastError(void);
const char* hipGetErrorName(hipError_t error);
const char* hipGetErrorString(hipError_t error);

// --- memory ----------------------------------------------------------------------------------------------------------

hipError_t hipMalloc(void** pointer, size_t size);
hipError_t hipMallocManaged(void** pointer, size_t size, unsigned int flags);
hipError_t hipHostMalloc(void** pointer, size_t size, unsigned int flags);
hipError_t hipFree(void* pointer);
hipError_t hipHostFree(void* pointer);
hipError_t hipHostRegister(void* pointer, size_t size, unsigned int flags);
hipError_t hipHostUnregister(void* pointer);
hipError_t hipHostGetDevicePointer(void** device, void* host, unsigned int flags);
hipError_t hipMemGetInfo(size_t* available, size_t* total);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer);
hipError_t hipMemAdvise(const void* pointer, size_t count, hipMemoryAdvise advice, int device);
hipError_t hipMemPrefetchAsync(const void* pointer, size_t count, int device, hipStream_t stream);
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* pointer);
hipError_t hipIpcOpenMemHandle(void** pointer, hipIpcMemHandle_t handle, unsigned int flags);
hipError_t hipIpcCloseMemHandle(void* pointer);

hipError_t hipMemcpy(void* to, const void* from, size_t size, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void* to, const void* from, size_t size, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t size);
hipError_t hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t size,
                              hipStream_t stream);
hipError_t hipMemset(void* pointer, int value, size_t size);
hipError_t hipMemsetAsync(void* pointer, int value, size_t size, hipStream_t stream);

hipError_t hipMallocAsync(void** pointer, size_t size, hipStream_t stream);
hipError_t hipMallocFromPoolAsync(void** pointer, size_t size, hipMemPool_t pool, hipStream_t stream);
hipError_t hipFreeAsync(void* pointer, hipStream_t stream);
hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device);
hipError_t hipDeviceGetMemPool(hipMemPool_t* pool, int device);
hipError_t hipDeviceSetMemPool(int device, hipMemPool_t pool);
hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* properties);
hipError_t hipMemPoolDestroy(hipMemPool_t pool);
hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t bytes_to_keep);
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value);
hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value);
hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc* access, size_t count);

hipError_t hipMemAddressReserve(void** pointer, size_t size, size_t alignment, void* wanted, unsigned long long flags);
hipError_t hipMemAddressFree(void* pointer, size_t size);
hipError_t hipMemCreate(hipMemGenericAllocationHandle_t* handle, size_t size, const hipMemAllocationProp* properties,
                        unsigned long long flags);
hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle);
hipError_t hipMemMap(void* pointer, size_t size, size_t offset, hipMemGenericAllocationHandle_t handle,
                     unsigned long long flags);
hipError_t hipMemUnmap(void* pointer, size_t size);
hipError_t hipMemSetAccess(void* pointer, size_t size, const hipMemAccessDesc* access, size_t count);
hipError_t hipMemGetAllocationGranularity(size_t* granularity, const hipMemAllocationProp* properties,
                                          hipMemAllocationGranularity_flags option);

// --- streams and events ----------------------------------------------------------------------------------------------

hipError_t hipStreamCreate(hipStream_t* stream);
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags);
hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int flags, int priority);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int* flags);
hipError_t hipStreamGetPriority(hipStream_t stream, int* priority);
int hipGetStreamDeviceId(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags);
hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void* data, unsigned int flags);
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* data);

hipError_t hipEventCreate(hipEvent_t* event);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop);

// --- graphs ----------------------------------------------------------------------------------------------------------

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status);
hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus* status, unsigned long long* id);
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus* status, unsigned long long* id,
                                      hipGraph_t* graph, const hipGraphNode_t** dependencies, size_t* count);
hipError_t hipUserObjectCreate(hipUserObject_t* object, void* argument, hipHostFn_t destroy, unsigned int count,
                               unsigned int flags);
hipError_t hipGraphRetainUserObject(hipGraph_t graph, hipUserObject_t object, unsigned int count, unsigned int flags);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode);
hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph, hipGraphNode_t* error_node, char* log,
                               size_t log_size);
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphExecDestroy(hipGraphExec_t executable);
hipError_t hipGraphDebugDotPrint(hipGraph_t graph, const char* path, unsigned int flags);

// --- kernels ---------------------------------------------------------------------------------------------------------

hipError_t hipModuleLoad(hipModule_t* module, const char* path);
hipError_t hipModuleLoadData(hipModule_t* module, const void* image);
hipError_t hipModuleUnload(hipModule_t module);
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name);
hipError_t hipModuleGetGlobal(hipDeviceptr_t* pointer, size_t* size, hipModule_t module, const char* name);
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                 unsigned int shared_bytes, hipStream_t stream, void** arguments, void** extra);
hipError_t hipFuncGetAttribute(int* value, hipFunction_attribute attribute, hipFunction_t function);
hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                           hipStream_t stream);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                        size_t shared_bytes);
hipError_t hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void* function, size_t shared_bytes,
                                             int limit);
hipError_t hipCreateSurfaceObject(hipSurfaceObject_t* surface, const hipResourceDesc* description);
hipError_t hipDestroySurfaceObject(hipSurfaceObject_t surface);

#ifdef __cplusplus
}
#endif
