// Stands in for a header of Gloo that LibTorch includes and does not ship; nothing of it is used.
#pragma once
