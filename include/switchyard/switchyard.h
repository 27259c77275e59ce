// SPDX-License-Identifier: Apache-2.0
// The whole public face of Switchyard.
#pragma once
#include "switchyard/engine.h"
#include "switchyard/options.h"
#include "switchyard/request.h"
#include "switchyard/result.h"
#include "switchyard/routing.h"
#include "switchyard/version.h"
