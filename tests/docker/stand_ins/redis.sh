#!/bin/sh
# As the official image's: other containers may connect, and the password is asked for where one is set.
set -eu
[ "$1" = redis-server ] || exec "$@"
exec "$@" --bind '* -::*' --protected-mode no
