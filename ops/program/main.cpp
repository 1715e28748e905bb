// The `lorry` program.
#include "ops/command.h"
#include "ops/event_log.h"

int main(int argc, char** argv) {
    lorry::ops::start_plain_log();
    return lorry::ops::run_program(argc, argv);
}
