#!/bin/sh
# As the official image's: the first start makes the user and the database that the environment names.
set -eu
[ "$1" = postgres ] || exec "$@"
set -- "$@" -c unix_socket_directories=/tmp
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    password=$(mktemp)
    printf '%s' "$POSTGRES_PASSWORD" >"$password"
    initdb --username="$POSTGRES_USER" --pwfile="$password" --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8
    rm "$password"
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl --wait --options="-c unix_socket_directories=/tmp -c listen_addresses=" start
    createdb --username="$POSTGRES_USER" "${POSTGRES_DB:-$POSTGRES_USER}"
    pg_ctl --wait --mode=fast stop
fi
exec "$@" -c listen_addresses='*'
