/* A driver's library that a test steers: it stands where libnvidia-ml.so.1 would, so that the real pynvml calls it.
   Until `fake_gpus` is called there is no driver. Every nvml function gives an nvmlReturn_t. */

#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, MOST = 16 };
enum { HANDLE, NAME, MEMORY, UTILIZATION, CALLS };

typedef struct {
    int slice; /* 0: the GPU itself */
    int errors[CALLS];
    int slices;
    unsigned long long total, used;
    unsigned busy;
    char name[96];
} Device;

static Device devices[MOST], mig[MOST][8];
static int count, init_error = DRIVER_NOT_LOADED, count_error;
static volatile int hangs, inits;

void fake_reset(void) {
    memset(devices, 0, sizeof devices);
    memset(mig, 0, sizeof mig);
    count = count_error = hangs = inits = 0;
    init_error = DRIVER_NOT_LOADED;
}

void fake_gpus(int number) {
    count = number;
    init_error = SUCCESS;
    for (int i = 0; i < number; i++) {
        strcpy(devices[i].name, "NVIDIA H200");
        devices[i].total = 141ULL << 30;
        devices[i].used = 40ULL << 30;
        devices[i].busy = 70;
    }
}

void fake_init_error(int error) { init_error = error; }
void fake_count_error(int error) { count_error = error; }
void fake_error(int gpu, int call, int error) { devices[gpu].errors[call] = error; }
void fake_name(int gpu, const char *name) { strncpy(devices[gpu].name, name, sizeof devices[gpu].name - 1); }
void fake_hang(int on) { hangs = on; }
int fake_inits(void) { return inits; }

void fake_slices(int gpu, int number) {
    devices[gpu].slices = number;
    for (int i = 0; i < number; i++) {
        mig[gpu][i] = devices[gpu];
        mig[gpu][i].slice = i + 1;
        mig[gpu][i].total = devices[gpu].total / 7;
        mig[gpu][i].errors[UTILIZATION] = NOT_SUPPORTED;
        strcat(mig[gpu][i].name, " MIG 1g.18gb");
    }
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    inits++;
    return init_error;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error) {
    return error == 15 ? "GPU is lost" : error == 4 ? "Insufficient Permissions" : "error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    strncpy(version, "570.86.15", length);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *found) {
    while (hangs) usleep(5000);
    *found = count;
    return count_error;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if ((int)index >= count) return INVALID;
    *device = &devices[index];
    return devices[index].errors[HANDLE];
}

int nvmlDeviceGetName(Device *device, char *name, unsigned length) {
    strncpy(name, device->name, length);
    return device->errors[NAME];
}

int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long *memory) {
    memory[0] = device->total;
    memory[1] = device->total - device->used;
    memory[2] = device->used;
    return device->errors[MEMORY];
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned *rates) {
    rates[0] = device->busy;
    rates[1] = 0;
    return device->errors[UTILIZATION];
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    *current = *pending = device->slices > 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *most) {
    *most = 7;
    return device->slices > 0 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice) {
    if ((int)index >= device->slices) return NOT_FOUND;
    *slice = &mig[device - devices][index];
    return SUCCESS;
}
