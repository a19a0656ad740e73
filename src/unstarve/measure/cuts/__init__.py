"""The user's functions taken apart at their statements: watched, and put together without a part."""
