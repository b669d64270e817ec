#!/bin/busybox sh
# The first process of a guest: enables the shared memory, creates the text, and runs the lines from the second serial port.
/bin/busybox --install -s /bin
export PATH=/bin OUTLIVE_FENCE_COMMAND=/bin/fence
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /tmp /text
mount -t tmpfs shm /dev/shm
exec </dev/null >/dev/ttyS0 2>&1

for device in /sys/bus/pci/devices/*; do
    if [ "$(cat $device/vendor):$(cat $device/device)" = 0x1af4:0x1110 ]; then
        echo 1 >$device/enable
        ln -s $device/resource2 /pod
    fi
done

# The same file in both guests, as on a shared filesystem: the same inode number, time and length.
mount -t tmpfs text /text
copy=0
while [ $copy -lt $COPIES ]; do
    cat /bible
    copy=$((copy + 1))
done >/text/words
touch -d @1000000000 /text/words

for port in 1 2 3; do
    stty raw -echo </dev/ttyS$port
done
exec 3<>/dev/ttyS1
echo ready >&3
# Each line is the length of a command and the command. Characters are lost now and then.
while read -r line <&3; do
    command=${line#*:}
    if [ "${#command}:$command" = "$line" ]; then
        eval "$command" </dev/null >&3 2>&1
        echo "<<$?>>" >&3
    else
        echo "<<again>>" >&3
    fi
done
