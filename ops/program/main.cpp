// The entry point of the `lorry` program: sets up the log and runs the command that the arguments name.
#include "ops/command.h"
#include "ops/event_log.h"

int main(int argc, char** argv) {
    lorry::ops::start_plain_log();
    return lorry::ops::run_program(argc, argv);
}
