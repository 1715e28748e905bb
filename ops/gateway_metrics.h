// The rows of metric_table.h that gateways fill: requests over HTTP, calls over Kafka, files and batches. Used by metric_table.cpp.
#pragma once

#include <span>

#include "ops/metric_table.h"

namespace lorry::ops {

std::span<const Metric> request_metrics();
std::span<const Metric> call_metrics();
std::span<const Metric> file_metrics();

}  // namespace lorry::ops
