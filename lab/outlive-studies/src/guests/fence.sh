#!/bin/busybox sh
# The fence command: sends a request to the study, which controls the monitors, through the third serial port, and waits for the
# answer about this host.
exec 3<>/dev/ttyS2
echo "fence $*" >&3
while read -r answer host <&3; do
    [ "$host" = "$1" ] && break
done
echo "the monitor says: $answer"
[ "$answer" = off ]
