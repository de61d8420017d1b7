"""Plans that were measured: how they are asked for, built in parallel and remembered."""
