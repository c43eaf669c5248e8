/* Floor of a decision: 100 bytes to each of three processes over pipes, and all three answers. fan_out [COUNT [CPU]] */
#include "exchange.h"

int main(int argc, char **argv) { return run_exchange("fan_out", 3, open_pipes, argc, argv); }
