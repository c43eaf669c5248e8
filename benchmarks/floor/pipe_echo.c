/* Floor of a call: 100 bytes to another process over a pipe and back over a second one. pipe_echo [COUNT [CPU]] */
#include "exchange.h"

int main(int argc, char **argv) { return run_exchange("pipe_echo", 1, open_pipes, argc, argv); }
