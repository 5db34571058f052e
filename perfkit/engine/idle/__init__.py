"""Why a rank was idle: each gap of its steps is cut, and each piece gets one cause (metrics.md section 14)."""
