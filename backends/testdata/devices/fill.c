/* Fills new memory of a device with NaN, which shows what reads memory that nothing has written. The engine opens the loader by name, so this library takes its
   place and lets everything else through:

     gcc -shared -fPIC -DVULKAN -o DIR/libvulkan.so fill.c -Wl,--no-as-needed -l:libvulkan.so.1
     gcc -shared -fPIC -o DIR/libOpenCL.so fill.c -Wl,--no-as-needed -l:libOpenCL.so.1
     LD_LIBRARY_PATH=DIR ... logits.py ...          on lavapipe and pocl, whose memory the host can write */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#ifdef VULKAN
#include <vulkan/vulkan.h>
VkResult vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *allocator, VkDeviceMemory *memory) {
  void *loader = dlopen("libvulkan.so.1", RTLD_NOW), *p;
  VkResult r = ((PFN_vkAllocateMemory)dlsym(loader, "vkAllocateMemory"))(device, info, allocator, memory);
  if (r == VK_SUCCESS && ((PFN_vkMapMemory)dlsym(loader, "vkMapMemory"))(device, *memory, 0, VK_WHOLE_SIZE, 0, &p) == VK_SUCCESS) {
    memset(p, 0xff, info->allocationSize);
    ((PFN_vkUnmapMemory)dlsym(loader, "vkUnmapMemory"))(device, *memory);
  }
  return r;
}
#else
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t n, void *host, cl_int *error) {
  cl_mem (*create)(cl_context, cl_mem_flags, size_t, void *, cl_int *) = dlsym(dlopen("libOpenCL.so.1", RTLD_NOW), "clCreateBuffer");
  if (host) return create(context, flags, n, host, error);
  void *p = memset(malloc(n), 0xff, n);
  cl_mem m = create(context, flags | CL_MEM_COPY_HOST_PTR, n, p, error);
  free(p);
  return m;
}
#endif
